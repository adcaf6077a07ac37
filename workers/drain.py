"""The end of a unit's worker: it does what the parent says on its standard input, and ends when that input does.

Celery's threads pool can't drain (signals wait there until the tasks end by themselves), so signals are the parent's business. It
writes ``drain`` or ``now``; the input's end says that the parent is gone, in whatever way. Either way the slots give back what
they hold, and then the process ends under Celery's hands: what Celery still holds are doorbells, which may be lost.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import structlog

from tasks.app import app
from workers.engine_mark import end_leftover, find_mark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workers.slots import Slots

ORPHAN_SECONDS = 10.0
"""What the slots of a dead parent's worker have for giving back; their leases run out for the rest."""

log = structlog.get_logger(__name__)


def obey(slots: Slots, words: Iterable[str], queue: str, node: str) -> None:
    """Read the parent's words until they end, then end this process. Runs in a thread of its own.

    ``node`` is this worker's name to Celery, ``queue`` what it consumes.
    """
    for word in words:
        _stop_slots(slots, at_once=word.strip() == "now")
        threading.Thread(target=_stop_consuming, args=(queue, node), name="consumer", daemon=True).start()
        threading.Thread(target=_leave, args=(slots,), name="leave", daemon=True).start()
    _end_orphan(slots)


def _stop_slots(slots: Slots, *, at_once: bool) -> None:
    slots.stop.draining.set()
    if at_once:
        slots.stop.at_once.set()


def _stop_consuming(queue: str, node: str) -> None:
    """Leave the doorbells to units that can still hear them. Where the broker is away none comes here either."""
    try:
        app.control.cancel_consumer(queue, destination=[node])
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, the drain goes on
        log.warning("consumer_not_cancelled", queue=queue, error=repr(error))


def _end_orphan(slots: Slots) -> None:
    """Give back at once and go. The kernel told the engine to end when its parent did; one that is deaf is ended here."""
    engine = find_mark(slots.socket_path)
    _stop_slots(slots, at_once=True)
    slots.wait_until_idle(ORPHAN_SECONDS)
    if engine is not None and find_mark(slots.socket_path) == engine:
        end_leftover(slots.socket_path)
    log.warning("worker_orphaned", unit=slots.unit.id)
    os._exit(1)


def _leave(slots: Slots) -> None:
    """Go when the last slot has given back. Should it never, the parent has a limit and ends this process."""
    slots.wait_until_idle()
    log.info("worker_drained", unit=slots.unit.id)
    os._exit(0)
