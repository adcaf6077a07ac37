"""The one reader of the environment.

``load_settings`` turns variables into a frozen ``Settings`` and tells all faults at once. Under the
environment lies the file ``<ANEX_DATA_DIR>/stack.env`` (``KEY=VALUE``), in which the one-machine stack
keeps the addresses and secrets of the servers it started; a variable of the environment wins over it.

A value that only some roles need may be absent; a role asks for it with ``Settings.require``.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from anex.outbound import OutboundPolicy
from anex.regions import REGIONS, Region
from anex.services import Limits, Timings
from config.environment import PREFIX, EnvironmentReader, SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

STACK_FILE = "stack.env"
CATALOGS = Path(__file__).parent

DEFAULT_ORIGINS: dict[str, str] = {"world": "https://api.anex.sh", "eu": "https://api-eu.anex.sh"}

RATE_LIMIT = "20 per 2 second"
"""10 requests a second, with bursts of 20."""

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

FERNET_KEY_BYTES = 32
"""Length of a decoded key; https://github.com/fernet/spec/blob/master/Spec.md."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where the region's objects lie. Clients reach ``public_endpoint``, and links are signed for it."""

    endpoint: str | None
    public_endpoint: str | None
    region: str
    bucket: str
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is set from outside. A ``None`` was not set and has no default."""

    data_dir: Path
    database_owner_url: str | None = field(repr=False)
    database_api_url: str | None = field(repr=False)
    database_work_url: str | None = field(repr=False)
    redis_url: str | None = field(repr=False)
    s3: S3Settings
    secret_keys: tuple[str, ...] = field(repr=False)
    """Fernet keys: the first encrypts, all decrypt."""
    region: Region
    catalog_path: Path
    models_offered: frozenset[str] | None
    """None: all models of the catalog."""
    allow_fake_engine: bool
    engine_python: Path
    engine_idle_seconds: float
    """After how long without work a GPU unit ends; 0 for never."""
    api_host: str
    api_port: int
    api_workers: int
    api_request_seconds: float
    """In what time a request must have arrived."""
    rate_limit: str | None
    """Requests that one key may make, and failed ones that one address may, as ``limits`` writes it; None: no limit."""
    trusted_proxies: int
    """How many proxies in front of the API add to X-Forwarded-For; what stands before their entries is not believed."""
    metrics_host: str
    metrics_port: int | None
    """None: no metrics are served."""
    log_level: LogLevel
    log_format: LogFormat
    postgres_bin: Path | None
    ffmpeg_bin: Path | None
    outbound: OutboundPolicy
    origins: dict[str, str]
    """Where each region's API is reached: what is stored in another region is answered with its address."""
    timings: Timings
    limits: Limits

    def require(self, name: str) -> str:
        """Return a text setting, such as ``database_api_url`` or ``s3.endpoint``.

        Raises ``SettingsInvalid`` when it is not set.
        """
        value: Any = self
        for part in name.split("."):
            value = getattr(value, part)
        if not value:
            variable = PREFIX + name.replace(".", "_").upper()
            fault = (
                f"{variable} is not set: set it, or run `anex up`, which starts what is needed and sets it"
            )
            raise SettingsInvalid([fault])
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a text setting")
        return value


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read and check all settings. Raises ``SettingsInvalid`` with every fault there is."""
    data_dir = Path(environ.get(f"{PREFIX}DATA_DIR") or ".anex").expanduser().absolute()
    reader = EnvironmentReader(environ, data_dir / STACK_FILE, known=[f"{PREFIX}DATA_DIR"])
    settings = _read_settings(reader, data_dir)
    reader.check_names()
    if settings.timings.heartbeat_seconds >= settings.timings.lease_seconds:
        reader.faults.append(
            "ANEX_HEARTBEAT_SECONDS must be below ANEX_LEASE_SECONDS, or every lease expires"
        )
    if reader.faults:
        raise SettingsInvalid(reader.faults)
    return settings


def _read_settings(reader: EnvironmentReader, data_dir: Path) -> Settings:
    region: Region = reader.choice("REGION", REGIONS, "world")
    return Settings(
        data_dir=data_dir,
        database_owner_url=reader.address("DATABASE_OWNER_URL", ("postgresql", "postgres")),
        database_api_url=reader.address("DATABASE_API_URL", ("postgresql", "postgres")),
        database_work_url=reader.address("DATABASE_WORK_URL", ("postgresql", "postgres")),
        redis_url=reader.address("REDIS_URL", ("redis", "rediss")),
        s3=_read_s3(reader, region),
        secret_keys=reader.secret("SECRET_KEY", _parse_fernet_keys, "Fernet keys, separated by commas", ()),
        region=region,
        catalog_path=reader.read("CATALOG", _parse_catalog, "a path", CATALOGS / "models.toml"),
        models_offered=reader.read("MODELS_OFFERED", _parse_names, "model ids, separated by commas", None),
        allow_fake_engine=reader.choice("ALLOW_FAKE_ENGINE", ("0", "1"), "0") == "1",
        engine_python=reader.read("ENGINE_PYTHON", _parse_path, "a Python interpreter", Path(sys.executable)),
        engine_idle_seconds=reader.number_or_zero("ENGINE_IDLE_SECONDS", 0.0),
        api_host=reader.read("API_HOST", str, "an address", "127.0.0.1"),
        api_port=reader.read("API_PORT", _parse_port, "a port from 1 to 65535", 8000),
        api_workers=reader.count("API_WORKERS", 2),
        api_request_seconds=reader.number("API_REQUEST_SECONDS", 30.0),
        rate_limit=reader.read("RATE_LIMIT", _parse_rate_limit, "'20 per 2 second' or 'off'", RATE_LIMIT),
        trusted_proxies=reader.read("TRUSTED_PROXIES", _parse_proxies, "a whole number, 0 or more", 0),
        metrics_host=reader.read("METRICS_HOST", str, "an address", "127.0.0.1"),
        metrics_port=reader.read("METRICS_PORT", _parse_port, "a port from 1 to 65535", None),
        log_level=reader.choice("LOG_LEVEL", get_args(LogLevel), "info"),
        log_format=reader.choice("LOG_FORMAT", get_args(LogFormat), "console"),
        postgres_bin=reader.read("POSTGRES_BIN", _parse_path, "a folder", None),
        ffmpeg_bin=reader.read("FFMPEG_BIN", _parse_path, "a folder", None),
        outbound=_read_outbound(reader),
        origins={region: _read_origin(reader, region) for region in REGIONS},
        timings=Timings(**reader.numbers_of(Timings)),
        limits=Limits(**reader.numbers_of(Limits)),
    )


def _read_s3(reader: EnvironmentReader, region: Region) -> S3Settings:
    endpoint = reader.address("S3_ENDPOINT", ("http", "https"))
    return S3Settings(
        endpoint=endpoint,
        public_endpoint=reader.address("S3_PUBLIC_ENDPOINT", ("http", "https")) or endpoint,
        region=reader.read("S3_REGION", str, "a region's name", "us-east-1"),
        bucket=reader.read("S3_BUCKET", _parse_bucket, "a bucket's name", f"anex-{region}"),
        access_key=reader.secret("S3_ACCESS_KEY", str, "an access key", None),
        secret_key=reader.secret("S3_SECRET_KEY", str, "a secret key", None),
    )


def _read_origin(reader: EnvironmentReader, region: Region) -> str:
    return reader.address(f"ORIGIN_{region.upper()}", ("http", "https")) or DEFAULT_ORIGINS[region]


def _read_outbound(reader: EnvironmentReader) -> OutboundPolicy:
    networks = reader.read(
        "OUTBOUND_ALLOWED_NETWORKS",
        _parse_networks,
        "networks such as 10.0.0.0/8, separated by commas, that may be called beside the public internet",
        (),
    )
    ca_file = reader.read("OUTBOUND_CA_FILE", _parse_file, "a file of CA certificates", None)
    return OutboundPolicy(allowed_networks=networks, ca_file=ca_file)


def _parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(network.strip()) for network in text.split(","))


def _parse_file(text: str) -> Path:
    path = _parse_path(text)
    if not path.is_file():
        raise ValueError
    return path


def _parse_path(text: str) -> Path:
    return Path(text).expanduser()


def _parse_catalog(text: str) -> Path:
    """Take a bare file name for a catalog that ships with anex and everything else for a path."""
    path = _parse_path(text)
    return CATALOGS / path if path.name == text else path


def _parse_names(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(","))
    if "" in names:
        raise ValueError
    return names


def _parse_fernet_keys(text: str) -> tuple[str, ...]:
    keys = tuple(key.strip() for key in text.split(","))
    for key in keys:
        try:
            decoded = base64.b64decode(key, altchars=b"-_", validate=True)
        except binascii.Error as error:
            raise ValueError from error
        if len(decoded) != FERNET_KEY_BYTES:
            raise ValueError
    return keys


def _parse_bucket(text: str) -> str:
    """https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", text):
        raise ValueError
    return text


def _parse_rate_limit(text: str) -> str | None:
    """Take one limit, such as "20 per 2 second"; "off" is None."""
    from limits import parse_many  # noqa: PLC0415 - a tenth of a second that only this variable is worth

    if text == "off":
        return None
    asked = parse_many(text)
    if len(asked) != 1 or asked[0].amount < 1:
        raise ValueError
    return text


def _parse_proxies(text: str) -> int:
    proxies = int(text)
    if proxies < 0:
        raise ValueError
    return proxies


def _parse_port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:  # noqa: PLR2004 # the range of TCP ports
        raise ValueError
    return port
