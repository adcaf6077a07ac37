"""What the supervisor needs to know about one service."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from config.stack.child import SAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVERS = 0
"""Tier of what others depend on: started first, stopped last."""

PROCESSES = 1
"""Tier of anex's own processes."""

State = Literal["waiting", "starting", "ready", "restarting", "stopping", "stopped", "external"]


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """One child of the supervisor: how it starts, when it is ready, how it stops."""

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(repr=False)
    """The whole environment; it holds secrets, the command never does."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_seconds: float = 10.0
    ready: Callable[[], bool] | None = None
    """A real request to the service, bounded to about two seconds. None: running is ready."""
    ready_timeout_seconds: float = 30.0
    critical: bool = True
    """Whether the ordered start fails when this service does not become ready."""
    tier: int = PROCESSES
    until_success: bool = False
    """Whether exit code 0 is the end of it (a GPU unit that went idle) and not a reason to start again."""
    identity: str = SAME
    url: str | None = None
    """Where it listens, without secrets."""
