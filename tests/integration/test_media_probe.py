"""Asking ffprobe in a child: what it tells, and that neither a clip nor the program can do harm."""

from __future__ import annotations

import os
import stat
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anex.media.model import Clip
from anex.media.probe import ClipProbe
from anex.media.probe_child import FILE_MAX_BYTES, MEMORY_MAX_BYTES
from tests.support.clips import RECIPES, UNSTATED, ClipShelf
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


class Content:
    """Bytes in memory, in reads of any size."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    def read(self, offset: int, count: int) -> bytes:
        return self._content[offset : offset + count]


class Shrunk(Content):
    """Bytes of which some are gone when they are read."""

    @property
    def size_bytes(self) -> int:
        return len(self._content) + 1


@pytest.fixture
def write_program(tmp_path: Path) -> Callable[[str], Path]:
    """Return a writer of programs that stand in for ffprobe."""

    def write(text: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!{sys.executable} -S\nimport os, resource, sys, signal\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return write


def probe(program: Path, content: bytes = b"clip", *, limit_seconds: float = 20.0) -> Clip | None:
    return ClipProbe(program, time_limit_seconds=limit_seconds).probe("mp4", Content(content))


@pytest.mark.parametrize(
    "name", ["mp4-h264", "mov-h264", "mp4-fragments-after-samples", "webm-vp9", "mkv-h264"]
)
def test_it_tells_length_and_pictures_of_a_video(clips: ClipShelf, name: str) -> None:
    found = ClipProbe(clips.programs.ffprobe).probe(RECIPES[name].format, Content(clips.read(name)))

    assert found == Clip(clips.seconds(name), 31, Fraction(25))


@pytest.mark.parametrize("name", ["wav-16", "aiff", "flac", "ogg-vorbis", "opus", "m4a-aac"])
def test_it_tells_the_length_of_sound(clips: ClipShelf, name: str) -> None:
    found = ClipProbe(clips.programs.ffprobe).probe(RECIPES[name].format, Content(clips.read(name)))

    assert found == Clip(clips.seconds(name))


@pytest.mark.parametrize("name", ["mp3-bare", "aac", "avi", "wav-piped"])
def test_a_guess_by_the_bit_rate_is_not_taken(clips: ClipShelf, name: str) -> None:
    recipe = {**RECIPES, **UNSTATED}[name]
    assert clips.seconds(name)

    assert ClipProbe(clips.programs.ffprobe).probe(recipe.format, Content(clips.read(name))) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 5000, b"#EXTM3U\nfile:/etc/passwd\n", b"ffconcat version 1.0\nfile /etc/passwd\n"],
)
def test_bytes_that_are_no_clip_tell_nothing(clips: ClipShelf, content: bytes) -> None:
    assert ClipProbe(clips.programs.ffprobe).probe("mp4", Content(content)) is None


def test_a_clip_of_another_format_than_named_tells_nothing(clips: ClipShelf) -> None:
    assert ClipProbe(clips.programs.ffprobe).probe("mp4", Content(clips.read("mkv-h264"))) is None


def test_a_clip_that_is_too_large_or_not_all_there_is_not_asked_about(clips: ClipShelf) -> None:
    content = clips.read("mp4-h264")

    assert ClipProbe(clips.programs.ffprobe, size_max_bytes=1000).probe("mp4", Content(content)) is None
    assert ClipProbe(clips.programs.ffprobe).probe("mp4", Shrunk(content)) is None


ANSWER = '{"format": {"duration": "2.5"}, "streams": []}'


def test_the_program_reads_the_clip_and_has_nothing_else(write_program: Callable[[str], Path]) -> None:
    program = write_program(
        f"assert open('/dev/stdin', 'rb').read() == b'clip'\n"
        f"assert os.getcwd() == '/' and not set(os.environ) - {{'LC_CTYPE'}}, os.environ\n"
        f"assert os.getsid(0) == os.getpid()\n"
        f"assert resource.getrlimit(resource.RLIMIT_AS) == ({MEMORY_MAX_BYTES},) * 2\n"
        f"assert resource.getrlimit(resource.RLIMIT_CORE) == resource.getrlimit(resource.RLIMIT_NPROC) == (0, 0)\n"
        f"assert sorted(map(int, os.listdir('/proc/self/fd')))[:3] == [0, 1, 2]\n"
        f"assert len(os.listdir('/proc/self/fd')) <= 5\n"
        f"print('{ANSWER}')"
    )

    assert probe(program) == Clip(Fraction(5, 2))


@pytest.mark.parametrize(
    "text",
    [
        "os.kill(os.getpid(), signal.SIGSEGV)",
        f"print('{ANSWER}'); sys.exit(1)",
        "bytearray(600 << 20)",
        f"os.write(1, b' ' * {FILE_MAX_BYTES}); print('{ANSWER}')",
        "while True: pass",
        "signal.pause()",
        "print('not JSON')",
        "print('[]')",
        "print('{}')",
        """print('{"format": {"duration": "N/A"}, "streams": []}')""",
        """print('{"format": {"duration": "-1"}, "streams": []}')""",
        """print('{"format": {"duration": "1/0"}, "streams": []}')""",
        """print('{"format": {"duration": "1e99"}, "streams": []}')""",
        """print('{"format": {"duration": "1"}, "streams": [7]}')""",
        """print('{"format": {"duration": "1"}, "streams": [{"codec_type": "video"}]}')""",
        "sys.stdout.buffer.write(b'\\xff' * 100)",
    ],
)
def test_a_program_that_dies_or_talks_nonsense_tells_nothing(
    write_program: Callable[[str], Path], text: str
) -> None:
    limit_seconds = 0.5 if text in {"while True: pass", "signal.pause()"} else 20.0

    assert probe(write_program(text), limit_seconds=limit_seconds) is None


def test_a_program_that_is_missing_tells_nothing(tmp_path: Path) -> None:
    assert probe(tmp_path / "missing") is None


def test_a_program_out_of_time_is_gone(write_program: Callable[[str], Path], tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    program = write_program(f"open({str(noted)!r}, 'w').write(str(os.getpid()))\nsignal.pause()")

    assert probe(program, limit_seconds=1.0) is None
    assert not Path(f"/proc/{noted.read_text()}").exists()


def test_a_program_whose_asker_was_killed_is_gone(
    write_program: Callable[[str], Path], tmp_path: Path
) -> None:
    noted = tmp_path / "pid"
    program = write_program(
        f"open({str(noted)!r} + '~', 'w').write(str(os.getpid()))\n"
        f"os.rename({str(noted)!r} + '~', {str(noted)!r})\nsignal.pause()"
    )
    asker = os.fork()
    if asker == 0:
        probe(program, limit_seconds=60.0)
        os._exit(0)
    wait_until(noted.exists, what="the program runs")

    os.kill(asker, 9)
    os.waitpid(asker, 0)

    def is_gone() -> bool:
        status = Path(f"/proc/{noted.read_text()}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(is_gone, what="the program is gone")
