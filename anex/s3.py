"""The S3 client: how it is set up, what its failures mean, and the words of stored objects.

Sizes are bytes. An ETag is opaque and kept exactly as the store gives it, quotation marks included.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from anex.errors import ObjectChanged, ObjectMissing, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_TIMEOUT_SECONDS = 3
READ_TIMEOUT_SECONDS = 30
ATTEMPTS = 4
"""Of one request, with growing pauses; botocore repeats after time-outs, 5xx and throttling."""

POOL_CONNECTIONS = 32

_MISSING = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchVersion"})
_CHANGED = frozenset({"412", "PreconditionFailed"})


@dataclass(frozen=True, slots=True)
class S3Location:
    """A bucket, and who we are there. ``public_endpoint`` is the address that clients reach it under."""

    endpoint: str
    public_endpoint: str
    region: str
    bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS
    attempts: int = ATTEMPTS


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What is known of a stored object without reading it."""

    size_bytes: int
    etag: str


@dataclass(frozen=True, slots=True)
class PartSource:
    """A stored object that becomes a stretch of a joined one; it must still have this ETag."""

    key: str
    etag: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PresignedPost:
    """A form that uploads one object: POST the ``fields`` and then ``file`` to ``url``."""

    url: str
    fields: dict[str, str]


def make_client(location: S3Location, endpoint: str) -> Any:
    """Return a client for ``endpoint``; it is thread-safe but must be made after a fork.

    ``s3v4`` is said aloud because presigning falls back to version 2, which AWS refuses. Proxies of the
    environment are not used. Checksums beyond those that the protocol requires are off: not every store
    knows their trailers.
    """
    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name=location.region,
        aws_access_key_id=location.access_key,
        aws_secret_access_key=location.secret_key,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=location.read_timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": location.attempts},
            max_pool_connections=POOL_CONNECTIONS,
            proxies={},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@contextlib.contextmanager
def storage_errors(key: str) -> Iterator[None]:
    """Turn botocore's errors into ``ObjectMissing``, ``ObjectChanged`` and ``StorageUnavailable``."""
    try:
        yield
    except ClientError as error:
        code = error_code(error)
        if code in _MISSING:
            raise ObjectMissing(f"no object under {key}") from error
        if code in _CHANGED:
            raise ObjectChanged(f"{key} is not the object that was recorded") from error
        raise StorageUnavailable(f"the object store refused a request ({code})") from error
    except BotoCoreError as error:
        raise StorageUnavailable(f"the object store gave no answer ({type(error).__name__})") from error


def error_code(error: ClientError) -> str:
    """Return the S3 error code; a HEAD has only the HTTP status."""
    return str(error.response.get("Error", {}).get("Code", "unknown"))
