"""The process in which a stranger's schema is compiled: it may die of one, and nothing else does.

Used as ``python -P -m anex.grammar_child MEMORY_LIMIT_BYTES TIME_LIMIT_SECONDS``, standard input being a socket to
``anex.grammar``. It limits itself before it loads the grammar backend, greets, then answers each schema (JSON
text) with one JSON object:

    reason      why the engine would refuse the schema, null when it would not
    too_costly  whether the grammar takes more than an engine has to spare for one row
    leaving     whether this process ends after this answer

It ends when the socket does, so with the process that started it. While it compiles, an alarm stands in for that
process: its signal kills in the middle of native code. The kernel's own parent-death signal is tied to
the thread that started a child, and threads of servers come and go.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from anex.grammar_wire import pack, receive

if TYPE_CHECKING:
    from collections.abc import Callable

GROWTH_MAX_BYTES = 64 << 20
"""What one compiled schema may take. In the engine each row in flight holds a grammar of its own: 128 of them are 8 GiB."""
CPU_MAX_SECONDS = 0.5
"""What one schema may take of a processor. The engine compiles anew for each row, part of it in its one thread that answers
requests: 256 such rows keep it busy for 128 s, within the 180 s without progress after which an engine counts as stalled."""
GROWTH_KEPT_BYTES = 8 << 20
COMPILATIONS_MAX = 200
"""After so many schemas, or when so much memory stays taken, a fresh process takes over: an idle one is small, and what one schema
left behind neither hides nor adds to what the next one takes."""
OPEN_FILES_MAX = 32
ALARM_MARGIN_SECONDS = 1.0
"""The process that asks kills at the limit; the alarm is for the case that it is gone."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Serve until the other end closes, or until it is time for a fresh process."""
    memory_limit_bytes, time_limit_seconds = int(sys.argv[1]), float(sys.argv[2])
    _limit(memory_limit_bytes)
    find_reason = _load_backend()
    connection = socket.socket(fileno=0)
    connection.sendall(pack(b""))
    idle_bytes = _read_resident_bytes()
    for served in range(1, COMPILATIONS_MAX + 1):
        schema = receive(connection)
        if schema is None:
            return
        signal.setitimer(signal.ITIMER_REAL, time_limit_seconds + ALARM_MARGIN_SECONDS)
        answer = _answer(find_reason, schema, idle_bytes)
        signal.setitimer(signal.ITIMER_REAL, 0)
        kept_bytes = _read_resident_bytes() - idle_bytes
        answer["leaving"] = served == COMPILATIONS_MAX or kept_bytes > GROWTH_KEPT_BYTES
        connection.sendall(pack(json.dumps(answer).encode()))
        if answer["leaving"]:
            return


def _limit(memory_limit_bytes: int) -> None:
    """Set the limits, and the signals as they must be whatever the starting process did with its own."""
    for kind, value in (
        (resource.RLIMIT_AS, memory_limit_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES_MAX),
    ):
        resource.setrlimit(kind, (value, value))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; this process ends with its socket
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _load_backend() -> Callable[[str], tuple[str | None, int]]:
    """Load the backend under the limits; the function returns a schema's reason and the memory at its peak.

    The steps and options are those of vLLM 0.32 (``backend_guidance.py``) for a server that turns arbitrary whitespace off: its
    door validates with the default options and no tokenizer, its core builds a matcher with the server's. Validation is lazy:
    ``multipleOf: 9999991`` passes it in no time and takes gigabytes in a matcher. Hence the matcher and its first mask; measured,
    one over single bytes takes the same time and memory for that as one over a model's 49,000 tokens.
    """
    from llguidance import LLMatcher, LLTokenizer  # noqa: PLC0415 - under the limits

    tokenizer = LLTokenizer("byte")

    def find_reason(schema: str) -> tuple[str | None, int]:
        try:
            spaced, compact = (
                LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": flexible})
                for flexible in (True, False)
            )
        except ValueError as error:
            return str(error), 0
        if reason := LLMatcher.validate_grammar(spaced, None):
            return reason, 0
        matcher = LLMatcher(tokenizer, compact, log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return matcher.get_error() or None, _read_resident_bytes()

    find_reason('{"type":"object"}')  # what is loaded once is no schema's doing
    return find_reason


def _answer(
    find_reason: Callable[[str], tuple[str | None, int]], schema: bytes, idle_bytes: int
) -> dict[str, Any]:
    begun_seconds = time.process_time()
    reason, peak_bytes = find_reason(schema.decode())
    spent_seconds = time.process_time() - begun_seconds
    too_costly = peak_bytes - idle_bytes > GROWTH_MAX_BYTES or spent_seconds > CPU_MAX_SECONDS
    return {"reason": reason, "too_costly": too_costly}


def _read_resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - pathlib would be half of this process's memory
        return int(file.read().split()[1]) * _PAGE_BYTES


if __name__ == "__main__":
    main()
