"""The embedded Valkey: broker and results, with an append-only file: a killed server keeps its queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.stack.files import write_private
from config.stack.spec import SERVERS, ServiceSpec

if TYPE_CHECKING:
    from pathlib import Path

    from config.stack.layout import DataFolder
    from config.stack.secrets import StackSecrets

_READY_TIMEOUT_SECONDS = 2.0

# maxmemory-policy noeviction: a full broker must refuse new messages, never drop waiting ones.
_CONFIGURATION = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir "{folder}"
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
databases 64
daemonize no
set-proc-title no
"""


@dataclass(frozen=True, slots=True)
class EmbeddedValkey:
    """One Valkey server on 127.0.0.1; the password reaches it by a 0600 file."""

    program: Path
    folder: DataFolder
    port: int
    secrets: StackSecrets

    def prepare(self) -> None:
        """Write its configuration, password included."""
        content = _CONFIGURATION.format(
            port=self.port, password=self.secrets.valkey, folder=self.folder.valkey
        )
        write_private(self._configuration, content)

    def spec(self) -> ServiceSpec:
        """Return how the supervisor runs it."""
        return ServiceSpec(
            name="valkey",
            command=[str(self.program), str(self._configuration)],
            environment={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            ready=self.is_ready,
            ready_timeout_seconds=120.0,  # it loads its append-only file first
            tier=SERVERS,
            url=f"redis://127.0.0.1:{self.port}/0",
        )

    def is_ready(self) -> bool:
        """Whether it answers PING to our password (while it loads its file, it does not)."""
        try:
            with redis.Redis.from_url(
                self.url(),
                socket_timeout=_READY_TIMEOUT_SECONDS,
                socket_connect_timeout=_READY_TIMEOUT_SECONDS,
                retry=Retry(NoBackoff(), 0),
            ) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def url(self, database: int = 0) -> str:
        """Return its URL, password included."""
        return f"redis://:{self.secrets.valkey}@127.0.0.1:{self.port}/{database}"

    @property
    def _configuration(self) -> Path:
        return self.folder.secrets / "valkey.conf"
