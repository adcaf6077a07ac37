"""The embedded SeaweedFS: master, volume server, filer and S3 gateway in one process.

Only the S3 port asks for keys; the others serve objects to anyone who reaches 127.0.0.1, that is to every
user of this machine. A machine shared with strangers needs an S3 service of its own (``ANEX_S3_ENDPOINT``).
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from config.stack.files import write_private
from config.stack.ports import GRPC_OFFSET
from config.stack.spec import SERVERS, ServiceSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from config.stack.layout import DataFolder
    from config.stack.secrets import StackSecrets

PORTS = ("s3", "s3_master", "s3_volume", "s3_filer", "s3_admin")
"""The ports it listens on, each with a gRPC twin; the admin server opens its port even without its pages."""

_REGION = "us-east-1"  # SeaweedFS takes any; signatures need one
_READY_TIMEOUT_SECONDS = 2

# A master that resumes is not yet its own leader when the volume server first reports, and the next report
# comes 5 s later: until then nothing can be read. One that begins anew learns all volumes from that report.
_RESUME = "false"

_SOCKET_FOLDER = Path("/tmp")  # noqa: S108 - fixed in SeaweedFS, which puts its gRPC sockets there


@dataclass(frozen=True)
class EmbeddedSeaweedfs:
    """One SeaweedFS on 127.0.0.1; its keys reach it by a 0600 file."""

    program: Path
    folder: DataFolder
    ports: Mapping[str, int]
    secrets: StackSecrets
    bucket: str

    def prepare(self) -> None:
        """Write its keys, and remove what a killed server leaves: its remembered options and its sockets."""
        identity = {
            "name": "anex",
            "credentials": [
                {"accessKey": self.secrets.s3_access_key, "secretKey": self.secrets.s3_secret_key}
            ],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        write_private(self._configuration, json.dumps({"identities": [identity]}))
        (self.folder.seaweedfs / "mini.options").unlink(missing_ok=True)
        remove_sockets(self.ports)

    def spec(self) -> ServiceSpec:
        """Return how the supervisor runs it."""
        return ServiceSpec(
            name="seaweedfs",
            command=self._command(),
            environment={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(self.folder.seaweedfs)},
            stop_timeout_seconds=20.0,
            ready=self.is_ready,
            ready_timeout_seconds=120.0,
            tier=SERVERS,
            url=self.endpoint,
        )

    @property
    def endpoint(self) -> str:
        """Where S3 is spoken."""
        return f"http://127.0.0.1:{self.ports['s3']}"

    def is_ready(self) -> bool:
        """Whether an object can be written and read back; makes the bucket when it is missing."""
        key, body = "probe/ready", secrets.token_bytes(16)
        try:
            self._ensure_bucket()
            self._client.put_object(Bucket=self.bucket, Key=key, Body=body)
            found = self._client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            self._client.delete_object(Bucket=self.bucket, Key=key)
        except (BotoCoreError, ClientError):
            return False
        return bool(found == body)

    def _ensure_bucket(self) -> None:
        with contextlib.suppress(
            self._client.exceptions.BucketAlreadyExists, self._client.exceptions.BucketAlreadyOwnedByYou
        ):
            self._client.create_bucket(Bucket=self.bucket)

    @cached_property
    def _client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.secrets.s3_access_key,
            aws_secret_access_key=self.secrets.s3_secret_key,
            region_name=_REGION,
            config=Config(
                signature_version="s3v4",
                connect_timeout=_READY_TIMEOUT_SECONDS,
                read_timeout=_READY_TIMEOUT_SECONDS,
                retries={"total_max_attempts": 1},
                proxies={},
            ),
        )

    def _command(self) -> list[str]:
        options = {
            "dir": self.folder.seaweedfs,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3.config": self._configuration,
            "s3.port": self.ports["s3"],
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.localSocket": self.folder.run / "s3.sock",
            "webdav": "false",
            "admin.ui": "false",
            "admin.port": self.ports["s3_admin"],
            "master.port": self.ports["s3_master"],
            "master.volumeSizeLimitMB": 1024,
            "master.telemetry": "false",
            "master.resumeState": _RESUME,
            "volume.port": self.ports["s3_volume"],
            "filer.port": self.ports["s3_filer"],
            "filer.localSocket": self.folder.run / "filer.sock",
        }
        return [
            str(self.program),
            "-logtostderr=true",
            "mini",
            *(f"-{name}={value}" for name, value in options.items()),
        ]

    @property
    def _configuration(self) -> Path:
        return self.folder.secrets / "s3.json"


def remove_sockets(ports: Mapping[str, int]) -> None:
    """Remove what a stopped SeaweedFS leaves outside the data folder: sockets named by our ports."""
    for name in PORTS:
        service, port = name.removeprefix("s3_"), ports[name] + GRPC_OFFSET
        with contextlib.suppress(OSError):
            (_SOCKET_FOLDER / f"seaweedfs-{service}-grpc-{port}.sock").unlink()
