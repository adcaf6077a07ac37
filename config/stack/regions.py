"""Several regions on one machine: which settings differ, and what their processes are called.

Postgres is one for all; each region has a bucket, a database number of the broker, an API port and processes of its own. The first
region's settings are the stack's: they stand in ``stack.env``, and its processes have the plain names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.regions import REGIONS
from config.stack.errors import RegionsImpossible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anex.regions import Region
    from config.stack.embedded import EmbeddedServers

_OWN_SERVERS_ONLY = ("ANEX_REDIS_URL", "ANEX_S3_ENDPOINT", "ANEX_S3_BUCKET")


def parse_regions(text: str) -> tuple[Region, ...]:
    """Return the regions that ``world,eu`` names, in this order. Raises ``RegionsImpossible``."""
    known: dict[str, Region] = {region: region for region in REGIONS}
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        raise RegionsImpossible(
            f"--regions takes each of {', '.join(REGIONS)} once at most, separated by commas; it holds '{text}'"
        )
    return tuple(known[name] for name in names)


def check_servers(regions: Sequence[Region], environ: Mapping[str, str]) -> None:
    """Raise ``RegionsImpossible`` for several regions over servers from elsewhere: one setting can't name each region's own."""
    taken = [name for name in _OWN_SERVERS_ONLY if environ.get(name)]
    if len(regions) > 1 and taken:
        raise RegionsImpossible(
            f"several regions run over embedded servers only, and {', '.join(taken)} is set: run one `anex up` for each region,"
            " with ANEX_REGION and a data folder, bucket and broker of its own"
        )


def port_name(region: Region, regions: Sequence[Region]) -> str:
    """Return under which name a region's API port is kept."""
    return name_of("api", region, regions).replace("-", "_")


def name_of(service: str, region: Region, regions: Sequence[Region]) -> str:
    """Return what a region's process is called: the first region's are plain."""
    return service if region == regions[0] else f"{service}-{region}"


def region_variables(
    region: Region, regions: Sequence[Region], servers: EmbeddedServers, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of one region that differ from the first one's; none are left out for the first."""
    place = regions.index(region)
    port = environ.get("ANEX_API_PORT") if place == 0 else None
    variables = {"ANEX_REGION": region, "ANEX_API_PORT": port or str(servers.api_ports[region])}
    if place:
        variables["ANEX_S3_BUCKET"] = f"anex-{region}"
    if place and environ.get("ANEX_METRICS_PORT", "").isdigit():
        variables["ANEX_METRICS_PORT"] = str(int(environ["ANEX_METRICS_PORT"]) + place)
    if place and servers.valkey is not None:
        variables["ANEX_REDIS_URL"] = servers.valkey.url(place)
    return variables
