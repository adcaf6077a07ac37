"""What ffprobe says of a clip that our own readers make nothing of, asked in a child that may die of it.

The child limits itself, then becomes ffprobe (``anex.media.probe_child``). Files without names carry the clip in and
the answer out, so the kernel keeps the bound on the answer, and no pipe can fill up or block. ffmpeg-python's
own ``probe`` has no limits of any kind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from anex.media.durations import SECONDS_MAX
from anex.media.model import Clip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.media.model import ByteSource

SIZE_MAX_BYTES = 150 << 20
"""The largest inline item of any model in the catalog."""
TIME_LIMIT_SECONDS = 5.0
ANSWER_MAX_BYTES = 64 << 10
"""A kilobyte a stream; also what it may write of complaints."""

_CHILD = Path(__file__).with_name("probe_child.py")
_COPY_BYTES = 1 << 20
_DEMUXERS: Mapping[str, str] = {
    "mp4": "mov",
    "mov": "mov",
    "m4a": "mov",
    "webm": "matroska",
    "mkv": "matroska",
    "wav": "wav",
    "aiff": "aiff",
    "flac": "flac",
    "ogg": "ogg",
    "opus": "ogg",
}
"""The rest state no length: ffprobe would guess one from the bit rate, and our own guess is the contract's."""
_COUNTED = {"mov", "matroska"}
"""Where pictures are counted, by reading the file through: a file in fragments states only those of its head."""
_GUESSED = b"Estimating duration from bitrate"
_ENTRIES = "format=duration:stream=codec_type,avg_frame_rate,nb_read_packets:stream_disposition=attached_pic"


class ClipProbe:
    """Asks one ffprobe program. Thread-safe; a call waits for its child."""

    def __init__(
        self,
        ffprobe: Path,
        *,
        time_limit_seconds: float = TIME_LIMIT_SECONDS,
        size_max_bytes: int = SIZE_MAX_BYTES,
    ) -> None:
        """Take the path of the program; nothing starts yet."""
        self._ffprobe = ffprobe
        self._time_limit_seconds = time_limit_seconds
        self._size_max_bytes = size_max_bytes

    def probe(self, format: str, source: ByteSource) -> Clip | None:  # noqa: A002
        """Return what ffprobe reads, None where it reads no length, fails, or takes too long."""
        demuxer = _DEMUXERS.get(format)
        if demuxer is None or not 0 < source.size_bytes <= self._size_max_bytes:
            return None
        try:
            return self._ask(demuxer, source)
        except OSError:  # no room for a process or a file: then a length is not told, and nothing else fails
            return None

    def _ask(self, demuxer: str, source: ByteSource) -> Clip | None:
        with (
            tempfile.TemporaryFile() as clip,
            tempfile.TemporaryFile() as answer,
            tempfile.TemporaryFile() as noise,
        ):
            if not _copy(source, clip) or not self._run(demuxer, clip, answer, noise):
                return None
            return None if _GUESSED in _read(noise) else _understand(_read(answer))

    def _run(self, demuxer: str, clip: IO[bytes], answer: IO[bytes], noise: IO[bytes]) -> bool:
        """Return whether the child ended well and in time."""
        options = ["-v", "warning", "-threads", "1", "-print_format", "json", "-show_entries", _ENTRIES]
        if demuxer in _COUNTED:
            options.append("-count_packets")
        opened = ["-protocol_whitelist", "file", "-f", demuxer, "-i", "file:/dev/stdin"]
        # -I: neither our environment nor a module beside the script is in its reach.
        child = [sys.executable, "-I", "-S", str(_CHILD), str(os.getpid())]
        process = subprocess.Popen(
            [*child, str(self._ffprobe), *options, *opened],
            stdin=clip,
            stdout=answer,
            stderr=noise,
            cwd="/",
            env={},
            start_new_session=True,  # the terminal's signals are not for it
        )
        try:
            return process.wait(self._time_limit_seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            process.kill()
            process.wait()


def _copy(source: ByteSource, file: IO[bytes]) -> bool:
    """Write the source into a file and go back to its start; return whether all of it was there."""
    offset = 0
    while offset < source.size_bytes:
        block = source.read(offset, min(_COPY_BYTES, source.size_bytes - offset))
        if not block:
            return False
        file.write(block)
        offset += len(block)
    file.seek(0)
    return True


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(ANSWER_MAX_BYTES)


def _understand(answer: bytes) -> Clip | None:
    """Return the clip that an answer describes."""
    try:
        parsed = json.loads(answer)
        seconds = Fraction(parsed["format"]["duration"])
        video = next((stream for stream in parsed["streams"] if _is_video(stream)), None)
        frames, rate = (None, None) if video is None else _read_pictures(video)
    except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError):
        return None
    return Clip(seconds, frames, rate) if 0 < seconds <= SECONDS_MAX else None


def _is_video(stream: Mapping[str, Any]) -> bool:
    return stream["codec_type"] == "video" and not stream["disposition"]["attached_pic"]


def _read_pictures(stream: Mapping[str, Any]) -> tuple[int | None, Fraction | None]:
    """Return pictures and rate of a stream; ffprobe writes "0/0" for a rate that it doesn't know."""
    rate = stream.get("avg_frame_rate", "0/0")
    known = None if rate.startswith("0/") else Fraction(rate)
    return int(stream.get("nb_read_packets", 0)) or None, known if known and known > 0 else None
