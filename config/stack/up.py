"""``anex up``: the whole of anex on one machine, from the data folder's lock to the last process' end."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from anex.migrations import upgrade
from config.catalog import load_catalog
from config.environment import PREFIX
from config.pull import pull_packaged_models
from config.settings import load_settings
from config.stack.embedded import choose_servers, start_servers
from config.stack.errors import StopRequested
from config.stack.files import write_private
from config.stack.gpu_units import UnitsOnDemand, WaitingModels, WantedUnit
from config.stack.layout import PROJECT_FOLDER, DataFolder, FolderLock, make_folder
from config.stack.ports import check_port
from config.stack.proc import kill_members, unit_mark
from config.stack.processes import describe_gpu_unit, list_processes
from config.stack.regions import check_servers, name_of, parse_regions, region_variables
from config.stack.supervisor import Supervisor, install_stop_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anex.regions import Region
    from config.settings import Settings
    from config.stack.embedded import EmbeddedServers

_KILL_PAUSE_SECONDS = 0.05


def run_stack(environ: Mapping[str, str], *, out: TextIO, regions: str = "") -> int:
    """Run everything until Ctrl-C or SIGTERM; return the exit code 0. Lines for people go to ``out``.

    ``regions`` names those that run here, such as ``world,eu``; without it, it is the one of ``ANEX_REGION``.

    ``environ`` is the environment as it stands: what it has a URL for is used, the rest is started. Raises
    ``SettingsInvalid``, and ``StackError`` (the folder is in use, a service does not start, …).
    """

    def say(line: str) -> None:
        with suppress(OSError):  # a full disk or a closed terminal must not end what runs
            out.write(f"{line}\n")
            out.flush()

    folder = DataFolder(load_settings(environ).data_dir.resolve())
    make_folder(folder)
    with FolderLock(folder) as lock:
        folder.environment.unlink(missing_ok=True)  # a killed stack's addresses must not pass for settings
        settings = load_settings({**_one_machine_defaults(), **environ})
        # A wrong catalog is told before anything is started for it.
        load_catalog(
            settings.catalog_path, settings.models_offered, allow_fake_engine=settings.allow_fake_engine
        )
        serving = parse_regions(regions or settings.region)
        check_servers(serving, environ)
        _kill_leftovers(folder, say)
        folder.remove_sockets()
        supervisor = Supervisor(folder, lock_descriptor=lock.descriptor, say=say)
        install_stop_signals(supervisor)
        servers = None
        try:
            servers = choose_servers(settings, folder, regions=serving)
            _start_all(_Run(environ, folder, serving, servers, say), supervisor)
        except StopRequested as fact:
            say(fact.message)
        finally:
            supervisor.stop()
            folder.environment.unlink(missing_ok=True)
            if servers is not None:
                servers.tidy()
    return 0


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run of the stack is made of."""

    environ: Mapping[str, str]
    folder: DataFolder
    regions: tuple[Region, ...]
    servers: EmbeddedServers
    say: Callable[[str], None]

    def variables(self, region: Region) -> dict[str, str]:
        """Return every setting of a region: what was set, and for the rest what the servers here give."""
        was_set = {name: value for name, value in self.environ.items() if name.startswith(PREFIX) and value}
        own = region_variables(region, self.regions, self.servers, self.environ)
        return {
            **_one_machine_defaults(),
            **self.servers.variables,
            **self._origins(),
            **was_set,
            **own,
            "ANEX_DATA_DIR": str(self.folder.root),
        }

    def environment(self, region: Region) -> dict[str, str]:
        """Return the whole environment of a region's processes."""
        return {
            **self.environ,
            **self.variables(region),
            "PYTHONPATH": str(PROJECT_FOLDER),
            "PYTHONUNBUFFERED": "1",
        }

    def name_of(self, region: Region) -> Callable[[str], str]:
        """Return what gives a region's processes their names."""
        return lambda service: name_of(service, region, self.regions)

    def _origins(self) -> dict[str, str]:
        """Return where clients of each region are sent to: the addresses here."""
        origins = {}
        for region in self.regions:
            port = region_variables(region, self.regions, self.servers, self.environ)["ANEX_API_PORT"]
            origins[f"ANEX_ORIGIN_{region.upper()}"] = f"http://127.0.0.1:{port}"
        return origins


def _start_all(run: _Run, supervisor: Supervisor) -> None:
    supervisor.show_others(run.servers.external)
    start_servers(run.servers, supervisor)
    first = run.variables(run.regions[0])
    write_private(run.folder.environment, "".join(f"{name}={value}\n" for name, value in first.items()))
    settings = {region: load_settings(run.environment(region)) for region in run.regions}
    for each in settings.values():
        check_port(each.api_host, each.api_port)
    _prepare_data(settings, run.say)
    for region in run.regions:
        specs = list_processes(settings[region], run.folder, run.environment(region), run.name_of(region))
        supervisor.start(*specs)
    run.say(_describe_end(run, settings))
    waiting = WaitingModels(_look_for_work(settings), run.say)
    units = UnitsOnDemand(
        supervisor,
        waiting,
        lambda wanted: describe_gpu_unit(
            wanted.model, run.environment(wanted.region), run.name_of(wanted.region)
        ),
        always_shown=run.servers.external,
    )
    try:
        supervisor.run_until_stopped(units.tick)
    finally:
        waiting.close()


def _one_machine_defaults() -> dict[str, str]:
    """Return what is set for one machine unless it is set otherwise: small models, engines that stop when they are idle."""
    defaults = {"ANEX_CATALOG": "models.local.toml", "ANEX_ENGINE_IDLE_SECONDS": "300"}
    engine_python = PROJECT_FOLDER / ".venv-engine" / "bin" / "python"
    if engine_python.exists():
        defaults["ANEX_ENGINE_PYTHON"] = str(engine_python)
    return defaults


def _prepare_data(settings: Mapping[Region, Settings], say: Callable[[str], None]) -> None:
    """Bring the schema up to date, make each region's bucket, and put the models' tokenizers into it."""
    from config.wiring import build_catalog, build_object_store  # noqa: PLC0415 - the whole core: servers first

    begun = time.monotonic()
    for each in settings.values():
        upgrade(each.require("database_owner_url"))
        objects = build_object_store(each)
        objects.ensure_bucket()
        pull_packaged_models(each, objects, build_catalog(each), say)
    say(f"{'schema':10} up to date in {time.monotonic() - begun:.1f} s")


def _look_for_work(settings: Mapping[Region, Settings]) -> Callable[[], Sequence[WantedUnit]]:
    from anex.jobs.sweep import list_models_with_work  # noqa: PLC0415 - see _prepare_data
    from config.wiring import build_database  # noqa: PLC0415

    database = build_database(next(iter(settings.values())), "work")
    return lambda: [
        WantedUnit(region, model) for region in settings for model in list_models_with_work(database, region)
    ]


def _kill_leftovers(folder: DataFolder, say: Callable[[str], None]) -> None:
    """End what is left of an earlier run whose supervisor and guardian were both killed."""
    mark = unit_mark(folder.root)
    found = killed = kill_members(mark)
    while killed:
        time.sleep(_KILL_PAUSE_SECONDS)
        killed = kill_members(mark)
    if found:
        say(f"{'earlier':10} run left {found} processes; they were killed")


def _describe_end(run: _Run, settings: Mapping[Region, Settings]) -> str:
    """Return the banner: where everything is and what to do next."""
    addresses = [(spec.name, spec.url or "") for spec in run.servers.specs()]
    addresses += [(service.name, f"{service.url} (yours)") for service in run.servers.external]
    return "\n".join(
        [
            "",
            *(_tell_api(region, each, several=len(settings) > 1) for region, each in settings.items()),
            *(f"  {name:10} {url}" for name, url in addresses),
            f"  {'data':10} {run.folder.root}   logs: {run.folder.logs}",
            "",
            "In another terminal, with the same ANEX_DATA_DIR:",
            "  anex status                     what runs where",
            "  anex org create acme            an organization; then `anex key create`, `anex credits grant`",
            "Ctrl-C stops everything; the data stays.",
        ]
    )


def _tell_api(region: Region, settings: Settings, *, several: bool) -> str:
    address = f"http://{settings.api_host}:{settings.api_port}"
    where = f" for the region '{region}'" if several else ""
    return f"anex is up{where}: {address} (contract: {address}/openapi.json)"
