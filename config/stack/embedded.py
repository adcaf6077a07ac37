"""Which servers are started here and which are used from elsewhere, and the variables that result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from config.stack import seaweedfs as s3
from config.stack.binaries import find_postgres, find_seaweedfs, find_valkey
from config.stack.errors import StackError
from config.stack.identity import choose_identity
from config.stack.ports import settle_ports
from config.stack.postgres import API, OWNER, WORK, EmbeddedPostgres
from config.stack.regions import port_name
from config.stack.secrets import settle_secrets
from config.stack.status import ServiceStatus
from config.stack.valkey import EmbeddedValkey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from anex.regions import Region
    from config.settings import Settings
    from config.stack.layout import DataFolder
    from config.stack.secrets import StackSecrets
    from config.stack.spec import ServiceSpec
    from config.stack.supervisor import Supervisor

_PLAIN_PORTS = ("postgres", "valkey")


@dataclass
class EmbeddedServers:
    """The servers of one data folder; None where one is used from elsewhere."""

    postgres: EmbeddedPostgres | None = None
    valkey: EmbeddedValkey | None = None
    seaweedfs: s3.EmbeddedSeaweedfs | None = None
    external: list[ServiceStatus] = field(default_factory=list)
    api_ports: dict[Region, int] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict, repr=False)
    """What ``stack.env`` will hold for them."""

    def prepare(self) -> None:
        """Make what each needs before its start."""
        for server in (self.postgres, self.valkey, self.seaweedfs):
            if server is not None:
                server.prepare()

    def specs(self) -> list[ServiceSpec]:
        """Return how the supervisor runs them."""
        servers = (self.postgres, self.valkey, self.seaweedfs)
        return [server.spec() for server in servers if server is not None]

    def tidy(self) -> None:
        """Remove what a stopped server leaves outside the data folder."""
        if self.seaweedfs is not None:
            s3.remove_sockets(self.seaweedfs.ports)


def choose_servers(
    settings: Settings,
    folder: DataFolder,
    *,
    regions: Sequence[Region] = (),
    postgres_settings: Mapping[str, str] | None = None,
) -> EmbeddedServers:
    """Decide which servers are started in ``folder``: those for which ``settings`` has no URL.

    ``regions`` are those that run here; without any it is the one of ``settings``.

    Raises ``StackError`` when only some of the database's three URLs are set.
    """
    regions = regions or (settings.region,)
    names = {region: port_name(region, regions) for region in regions}
    ports = settle_ports(folder.ports, (*_PLAIN_PORTS, *names.values()), s3.PORTS)
    secrets = settle_secrets(folder)
    servers = EmbeddedServers(api_ports={region: ports[name] for region, name in names.items()})
    servers.variables["ANEX_API_PORT"] = str(ports[names[regions[0]]])
    if not settings.secret_keys:
        servers.variables["ANEX_SECRET_KEY"] = secrets.secret_key
    if _is_database_external(settings):
        servers.external.append(_describe_external("postgres", settings.database_api_url))
    else:
        _add_postgres(servers, folder, ports["postgres"], secrets, settings.postgres_bin, postgres_settings)
    if settings.redis_url:
        servers.external.append(_describe_external("valkey", settings.redis_url))
    else:
        servers.valkey = EmbeddedValkey(find_valkey(), folder, ports["valkey"], secrets)
        servers.variables["ANEX_REDIS_URL"] = servers.valkey.url()
    if settings.s3.endpoint:
        servers.external.append(_describe_external("seaweedfs", settings.s3.endpoint))
    else:
        _add_seaweedfs(servers, folder, ports, secrets, settings.s3.bucket)
    return servers


def start_servers(servers: EmbeddedServers, supervisor: Supervisor) -> None:
    """Start the embedded servers, wait until each answers, and make Postgres' roles."""
    servers.prepare()
    supervisor.start(*servers.specs())
    if servers.postgres is not None:
        servers.postgres.ensure_roles()


def _add_postgres(
    servers: EmbeddedServers,
    folder: DataFolder,
    port: int,
    secrets: StackSecrets,
    override: Path | None,
    server_settings: Mapping[str, str] | None,
) -> None:
    binaries = find_postgres(override)
    servers.postgres = EmbeddedPostgres(
        binaries=binaries,
        folder=folder.postgres,
        port=port,
        secrets=secrets,
        identity=choose_identity(binaries / "postgres"),
        settings=server_settings or {},
    )
    for role, variable in ((OWNER, "OWNER"), (API, "API"), (WORK, "WORK")):
        servers.variables[f"ANEX_DATABASE_{variable}_URL"] = servers.postgres.url(role)


def _add_seaweedfs(
    servers: EmbeddedServers,
    folder: DataFolder,
    ports: Mapping[str, int],
    secrets: StackSecrets,
    bucket: str,
) -> None:
    servers.seaweedfs = s3.EmbeddedSeaweedfs(find_seaweedfs(), folder, ports, secrets, bucket)
    servers.variables |= {
        "ANEX_S3_ENDPOINT": servers.seaweedfs.endpoint,
        "ANEX_S3_ACCESS_KEY": secrets.s3_access_key,
        "ANEX_S3_SECRET_KEY": secrets.s3_secret_key,
    }


def _is_database_external(settings: Settings) -> bool:
    urls = {
        "ANEX_DATABASE_OWNER_URL": settings.database_owner_url,
        "ANEX_DATABASE_API_URL": settings.database_api_url,
        "ANEX_DATABASE_WORK_URL": settings.database_work_url,
    }
    missing = [name for name, url in urls.items() if not url]
    if missing and len(missing) < len(urls):
        raise StackError(
            f"{', '.join(missing)} is not set while the database's other URLs are: set all three to use a "
            "Postgres of your own, or none to have one started."
        )
    return not missing


def _describe_external(name: str, url: str | None) -> ServiceStatus:
    parts = urlsplit(url or "")
    port = f":{parts.port}" if parts.port else ""
    return ServiceStatus(
        name=name, state="external", url=f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
    )
