"""``anex up``: the whole of anex on one machine, from the data folder's lock to the last process' end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from anex.migrations import upgrade
from config.catalog import load_catalog
from config.environment import PREFIX
from config.pull import pull_packaged_models
from config.settings import load_settings
from config.stack.embedded import choose_servers, start_servers
from config.stack.errors import StopRequested
from config.stack.files import write_private
from config.stack.gpu_units import UnitsOnDemand, WaitingModels
from config.stack.layout import PROJECT_FOLDER, DataFolder, FolderLock
from config.stack.proc import kill_members, unit_mark
from config.stack.processes import describe_gpu_unit, list_processes
from config.stack.supervisor import Supervisor, install_stop_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from config.settings import Settings
    from config.stack.embedded import EmbeddedServers

_KILL_PAUSE_SECONDS = 0.05


def run_stack(environ: Mapping[str, str], *, out: TextIO) -> int:
    """Run everything until Ctrl-C or SIGTERM; return the exit code 0. Lines for people go to ``out``.

    ``environ`` is the environment as it stands: what it has a URL for is used, the rest is started. Raises
    ``SettingsInvalid``, and ``StackError`` (the folder is in use, a service does not start, …).
    """

    def say(line: str) -> None:
        out.write(f"{line}\n")
        out.flush()

    folder = DataFolder(load_settings(environ).data_dir.resolve())
    folder.create()
    with FolderLock(folder) as lock:
        folder.environment.unlink(missing_ok=True)  # a killed stack's addresses must not pass for settings
        settings = load_settings({**_one_machine_defaults(), **environ})
        # A wrong catalog is told before anything is started for it.
        load_catalog(
            settings.catalog_path, settings.models_offered, allow_fake_engine=settings.allow_fake_engine
        )
        _kill_leftovers(folder, say)
        supervisor = Supervisor(folder, lock_descriptor=lock.descriptor, say=say)
        install_stop_signals(supervisor)
        servers = None
        try:
            servers = choose_servers(settings, folder)
            _start_all(environ, folder, servers, supervisor, say)
        except StopRequested as fact:
            say(fact.message)
        finally:
            supervisor.stop()
            folder.environment.unlink(missing_ok=True)
            if servers is not None:
                servers.tidy()
    return 0


def _start_all(
    environ: Mapping[str, str],
    folder: DataFolder,
    servers: EmbeddedServers,
    supervisor: Supervisor,
    say: Callable[[str], None],
) -> None:
    supervisor.show_others(servers.external)
    start_servers(servers, supervisor)
    variables = _resolve_variables(environ, folder, servers)
    write_private(folder.environment, "".join(f"{name}={value}\n" for name, value in variables.items()))
    environment = {**environ, **variables, "PYTHONPATH": str(PROJECT_FOLDER), "PYTHONUNBUFFERED": "1"}
    settings = load_settings(environment)
    _prepare_data(settings, say)
    supervisor.start(*list_processes(settings, folder, environment))
    say(_describe_end(settings, folder, servers))
    waiting = WaitingModels(_look_for_work(settings), say)
    units = UnitsOnDemand(
        supervisor,
        waiting,
        lambda model: describe_gpu_unit(model, environment),
        always_shown=servers.external,
    )
    try:
        supervisor.run_until_stopped(units.tick)
    finally:
        waiting.close()


def _resolve_variables(
    environ: Mapping[str, str], folder: DataFolder, servers: EmbeddedServers
) -> dict[str, str]:
    """Return every setting of this run: what was set, and for the rest what the servers here give."""
    was_set = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    return {**_one_machine_defaults(), **servers.variables, **was_set, "ANEX_DATA_DIR": str(folder.root)}


def _one_machine_defaults() -> dict[str, str]:
    """Return what is set for one machine unless it is set otherwise: small models, engines that stop when they are idle."""
    defaults = {"ANEX_CATALOG": "models.local.toml", "ANEX_ENGINE_IDLE_SECONDS": "300"}
    engine_python = PROJECT_FOLDER / ".venv-engine" / "bin" / "python"
    if engine_python.exists():
        defaults["ANEX_ENGINE_PYTHON"] = str(engine_python)
    return defaults


def _prepare_data(settings: Settings, say: Callable[[str], None]) -> None:
    """Bring the schema up to date, make the bucket, and put the models' tokenizers into it."""
    from config.wiring import build_catalog, build_object_store  # noqa: PLC0415 - the whole core: servers first

    begun = time.monotonic()
    upgrade(settings.require("database_owner_url"))
    objects = build_object_store(settings)
    objects.ensure_bucket()
    say(f"{'schema':10} up to date in {time.monotonic() - begun:.1f} s")
    pull_packaged_models(settings, objects, build_catalog(settings), say)


def _look_for_work(settings: Settings) -> Callable[[], Sequence[str]]:
    from anex.jobs.sweep import list_models_with_work  # noqa: PLC0415 - see _prepare_data
    from config.wiring import build_database  # noqa: PLC0415

    database = build_database(settings, "work")
    return lambda: list_models_with_work(database)


def _kill_leftovers(folder: DataFolder, say: Callable[[str], None]) -> None:
    """End what is left of an earlier run whose supervisor and guardian were both killed."""
    mark = unit_mark(folder.root)
    found = killed = kill_members(mark)
    while killed:
        time.sleep(_KILL_PAUSE_SECONDS)
        killed = kill_members(mark)
    if found:
        say(f"{'earlier':10} run left {found} processes; they were killed")


def _describe_end(settings: Settings, folder: DataFolder, servers: EmbeddedServers) -> str:
    """Return the banner: where everything is and what to do next."""
    address = f"http://{settings.api_host}:{settings.api_port}"
    addresses = [(spec.name, spec.url or "") for spec in servers.specs()]
    addresses += [(service.name, f"{service.url} (yours)") for service in servers.external]
    return "\n".join(
        [
            "",
            f"anex is up: {address} (contract: {address}/openapi.json)",
            *(f"  {name:10} {url}" for name, url in addresses),
            f"  {'data':10} {folder.root}   logs: {folder.logs}",
            "",
            "In another terminal, with the same ANEX_DATA_DIR:",
            "  anex status                     what runs where",
            "  anex org create acme            an organization; then `anex key create`, `anex credits grant`",
            "Ctrl-C stops everything; the data stays.",
        ]
    )
