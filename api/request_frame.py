"""Where a request ends in the bytes of a connection, told while they come and before anybody waits for more.

How long a body is, gunicorn's own parser says of the complete head, so there are no two readings of one request. Of a chunked body
only the end is looked for here. Whatever is wrong with a request counts as its end: gunicorn reads it then, and refuses it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gunicorn.http import get_parser
from gunicorn.http.body import ChunkedReader, LengthReader

if TYPE_CHECKING:
    from gunicorn.config import Config

BODY_MAX_BYTES = 1 << 20
"""It stands here and not beside what reads bodies: gunicorn's parent loads this module, and may load nothing of the application.
A counter that is made before the fork counts for nobody (``api.gunicorn_conf``)."""

HEAD_BYTES_MAX = 64 << 10
"""Of the request line and all headers; servers in front allow 8 to 32 KiB."""

CHUNKED_BYTES_MAX = 2 * BODY_MAX_BYTES
"""Of a chunked body with its framing, which has no business to outweigh the data."""

CHUNKS_MAX = 8192
"""Of a chunked body: each costs a look of ours and of gunicorn's."""

_HEAD_END = b"\r\n\r\n"
_LINE_END = b"\r\n"
_CHUNK_LINE_BYTES_MAX = 1 << 10
_HEX = re.compile(rb"[0-9a-fA-F]+")
_BODY_MARKS = (b"\ncontent-length", b"\ntransfer-encoding")


class HeadTooLarge(Exception):
    """The head has no end within ``HEAD_BYTES_MAX``."""


class RequestFrame:
    """The bytes of one connection that no request was made of yet."""

    def __init__(self, config: Config, client: Any) -> None:
        """Take what gunicorn's parser wants to know."""
        self.received = bytearray()
        self.is_last = False
        """Nothing that comes after the present request can be believed to be another one."""
        self.awaits_continue = False
        """The client sends the body when it is told to."""
        self._config = config
        self._client = client
        self._searched_bytes = 0
        self._end: int | None = None
        self._chunks: _Chunks | None = None

    def take(self) -> bytes | None:
        """Return the first request, cut off, when it is whole or can't become one that is taken. Raises ``HeadTooLarge``."""
        if self._end is None and self._chunks is None:
            self._look_for_head()
        if self._chunks is not None:
            self._end = self._chunks.find_end(self.received)
            self.is_last = self._chunks.is_refused
        if self._end is None or len(self.received) < self._end:
            return None
        request = bytes(self.received[: self._end])
        del self.received[: self._end]
        self._searched_bytes, self._end, self._chunks, self.awaits_continue = 0, None, None, False
        return request

    def _look_for_head(self) -> None:
        found = self.received.find(_HEAD_END, max(0, self._searched_bytes - len(_HEAD_END)), HEAD_BYTES_MAX)
        self._searched_bytes = len(self.received)
        if found >= 0:
            self._judge_body(found + len(_HEAD_END))
        elif len(self.received) >= HEAD_BYTES_MAX:
            raise HeadTooLarge

    def _judge_body(self, head_end: int) -> None:
        self._end = head_end
        head = bytes(self.received[:head_end])
        lowered = head.lower()
        if not any(mark in lowered for mark in _BODY_MARKS):
            return
        try:
            message = next(get_parser(self._config, [head], self._client))
        except Exception:  # noqa: BLE001 - whatever it is, gunicorn meets it again in a thread, and answers it there
            self.is_last = True
            return
        self.awaits_continue = message._expected_100_continue  # noqa: SLF001 - gunicorn has no other name for it
        reader = message.body.reader
        if isinstance(reader, ChunkedReader):
            self._end, self._chunks = None, _Chunks(head_end)
        elif isinstance(reader, LengthReader) and reader.length <= BODY_MAX_BYTES:
            self._end = head_end + reader.length
        else:  # too large to be read at all
            self.is_last = True


class _Chunks:
    """Walks over a chunked body as it comes."""

    def __init__(self, start: int) -> None:
        self._start = self._position = start
        self._count = 0
        self._is_in_trailers = False
        self.is_refused = False
        """It is malformed or too large: where it ends is not known."""

    def find_end(self, received: bytearray) -> int | None:
        """Return where the body ends, or all there is of one that is refused; None while more must come."""
        while (line_end := received.find(_LINE_END, self._position)) >= 0:
            following = line_end + len(_LINE_END)
            if self._is_in_trailers:
                if line_end == self._position:
                    return following
            elif (size_bytes := _read_size(received[self._position : line_end])) is None:
                return self._refuse(received)
            elif size_bytes == 0:
                self._is_in_trailers = True
            else:
                following += size_bytes + len(_LINE_END)
            if following > len(received):
                break
            self._position = following
            self._count += not self._is_in_trailers
            if self._count > CHUNKS_MAX:
                return self._refuse(received)
        is_line_too_long = line_end < 0 and len(received) - self._position > _CHUNK_LINE_BYTES_MAX
        is_too_large = len(received) - self._start > CHUNKED_BYTES_MAX
        return self._refuse(received) if is_line_too_long or is_too_large else None

    def _refuse(self, received: bytearray) -> int:
        self.is_refused = True
        return len(received)


def _read_size(line: bytearray) -> int | None:
    """Return the size that a chunk's first line states; None where it states none."""
    digits = line.partition(b";")[0].strip(b" \t")
    return int(digits, 16) if _HEX.fullmatch(digits) else None
