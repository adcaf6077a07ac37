"""Lengths and pictures in video containers made by hand; real ones are tested beside ffprobe (test_media_clips.py)."""

from __future__ import annotations

import struct
from fractions import Fraction

import pytest

from anex.media.durations import read_clip, read_pictures
from anex.media.model import Clip, MediaUnreadable
from anex.media.window import READS_MAX
from tests.support.containers import (
    LargeSource,
    MemorySource,
    box,
    chunk,
    clock,
    element,
    number,
    riff,
    trak,
)

EBML = element(0x1A45DFA3, element(0x4282, b"webm"))
VIDEO_TRACK = element(0x1654AE6B, element(0xAE, number(0xD7, 1), number(0x83, 1)))


def seconds(format: str, content: bytes) -> Fraction | None:  # noqa: A002
    clip = read_clip(format, MemorySource(content))
    return None if clip is None else clip.seconds


def test_an_avi_file_states_pictures_and_rate_beside_no_length() -> None:
    stream = struct.pack("<4s4sIHHIIIII", b"vids", b"MJPG", 0, 0, 0, 0, 1001, 30_000, 0, 45)
    sound = struct.pack("<4s4sIHHIIIII", b"auds", b"", 0, 0, 0, 0, 1, 8000, 0, 12_000)
    heads = [chunk(b"LIST", b"strl" + chunk(b"strh", body)) for body in (sound, stream)]
    content = riff(b"AVI ", chunk(b"LIST", b"hdrl" + chunk(b"avih", bytes(56)) + b"".join(heads)))

    assert read_pictures("avi", MemorySource(content)) == (45, Fraction(30_000, 1001))
    assert read_pictures("avi", MemorySource(content[:80])) == (None, None)
    assert read_pictures("mp4", MemorySource(content)) == (None, None)
    with pytest.raises(MediaUnreadable):
        read_pictures("avi", MemorySource(b"RIFF\0\0\0\0WAVE"))


# MP4


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("wide", [False, True])
def test_the_movie_header_states_the_length_in_both_widths(version: int, *, wide: bool) -> None:
    movie = box(
        b"moov", clock(b"mvhd", 600, 1500, version=version), trak(duration=2500, samples=50), wide=wide
    )
    content = box(b"ftyp", b"isom\0\0\0\0") + box(b"mdat", bytes(100), wide=wide) + movie

    assert read_clip("mp4", MemorySource(content)) == Clip(Fraction(5, 2), 50, Fraction(20))


def test_a_movie_behind_hundreds_of_gigabytes_takes_few_reads() -> None:
    head = box(b"ftyp", b"isom\0\0\0\0") + struct.pack(">I4sQ", 1, b"mdat", 1 << 39)
    source = LargeSource(head, (1 << 39) + 1000)

    assert read_clip("mp4", source) is None
    assert source.reads == 2


def test_the_last_box_may_have_no_end() -> None:
    movie = box(b"moov", clock(b"mvhd", 1000, 1500), open_ended=True)

    assert seconds("mov", box(b"wide") + movie) == Fraction(3, 2)


@pytest.mark.parametrize("duration", [0, 0xFFFFFFFF])
def test_a_movie_header_that_leaves_the_length_open_leaves_it_to_the_tracks(duration: int) -> None:
    header = clock(b"mvhd", 600, duration)

    assert seconds(
        "mp4", box(b"moov", header, trak(b"soun", duration=2500), trak(duration=2000))
    ) == Fraction(5, 2)
    assert seconds("mp4", box(b"moov", header, trak(duration=2500, presented=900))) == Fraction(3, 2)
    assert seconds("mp4", box(b"moov", header)) is None


@pytest.mark.parametrize(
    "content",
    [
        box(b"ftyp", b"isom"),
        box(b"moov", box(b"cmov", bytes(50))),
        box(b"moov", clock(b"mvhd", 0, 50)),
        box(b"moov", clock(b"mvhd", 1, 0xFFFFFFF0)),
        box(b"moov", clock(b"mvhd", 10, 50))[:-90],
        struct.pack(">I4s", 7, b"ftyp") * 9,
        box(b"free") * 50_000 + box(b"moov", clock(b"mvhd", 10, 50)),
    ],
    ids=["no movie", "compressed", "scale 0", "over a year", "cut off", "impossible size", "endless boxes"],
)
def test_an_mp4_file_that_says_too_little_states_no_length(content: bytes) -> None:
    assert seconds("mp4", content) is None


def make_fragments(*runs: bytes, extends: bytes = b"", start: int = 0) -> bytes:
    """Return a file with an empty movie of 1,000 units a second, whose samples last 40 unless a run says otherwise."""
    trex = box(b"trex", struct.pack(">4xIIIII", 1, 1, 40, 0, 0))
    movie = box(b"moov", clock(b"mvhd", 1000, 0), trak(), box(b"mvex", extends, trex))
    head = box(b"tfhd", struct.pack(">II", 0, 1))
    time = box(b"tfdt", struct.pack(">II", 0, start))
    return movie + b"".join(
        box(b"moof", box(b"traf", head, time, run)) + box(b"mdat", bytes(50)) for run in runs
    )


def test_samples_of_fragments_add_up() -> None:
    plain = box(b"trun", struct.pack(">II", 0, 25))
    each = box(b"trun", struct.pack(">II", 0x101 | 0x200, 2), bytes(4), struct.pack(">IIII", 100, 9, 300, 9))

    assert read_clip("mp4", MemorySource(make_fragments(plain, each))) == Clip(
        Fraction(7, 5), 27, Fraction(27 * 5, 7)
    )


def test_a_cut_of_live_fragments_begins_where_its_first_does() -> None:
    plain = box(b"trun", struct.pack(">II", 0, 25))

    assert seconds("mp4", make_fragments(plain, start=90_000)) == 1


def test_fragments_may_state_the_whole_or_be_listed() -> None:
    plain = box(b"trun", struct.pack(">II", 0, 25))
    stated = make_fragments(plain, extends=box(b"mehd", struct.pack(">II", 0, 7000)))
    bare = make_fragments(plain)
    movie_bytes = len(make_fragments())
    entry = struct.pack(">III", len(bare) - movie_bytes, 1234, 0)
    index = box(b"sidx", struct.pack(">4xIIIIHH", 1, 1000, 0, 0, 0, 1), entry)

    assert seconds("mp4", stated) == 7
    assert seconds("mp4", bare[:movie_bytes] + index + bare[movie_bytes:]) == Fraction(1234, 1000)


def test_too_many_fragments_to_follow_state_neither_length_nor_rate() -> None:
    plain = box(b"trun", struct.pack(">II", 0, 25))
    endless = [plain] * 9000
    source = MemorySource(make_fragments(*endless, extends=box(b"mehd", struct.pack(">II", 0, 7000))))

    assert seconds("mp4", make_fragments(*endless)) is None
    assert read_clip("mp4", source) == Clip(Fraction(7))
    assert source.reads <= READS_MAX


def test_the_last_of_many_fragments_is_found_by_the_index_at_the_end() -> None:
    endless = make_fragments(*[box(b"trun", struct.pack(">II", 0, 25))] * 9000)
    last = make_fragments(box(b"trun", struct.pack(">II", 0, 50)), start=9_000_000)[len(make_fragments()) :]
    entries = struct.pack(">IIBBB", 0, 1000, 1, 1, 1) + struct.pack(
        ">IIBBB", 9_000_000, len(endless), 1, 1, 1
    )
    access = box(b"tfra", struct.pack(">4xIII", 1, 0, 2), entries)
    index = box(b"mfra", access, box(b"mfro", struct.pack(">4xI", 8 + len(access) + 16)))

    clip = read_clip("mp4", MemorySource(endless + last + index))

    assert clip == Clip(Fraction(9002))


# Matroska


def make_cluster(time: int, *blocks: int, unknown: bool = False) -> bytes:
    return element(
        0x1F43B675,
        number(0xE7, time),
        *(element(0xA3, b"\x81" + struct.pack(">hB", block, 0x80) + bytes(9)) for block in blocks),
        unknown=unknown,
    )


def make_info(duration: float | None = None, scale: int = 1_000_000) -> bytes:
    stated = b"" if duration is None else element(0x4489, struct.pack(">d", duration))
    return element(0x1549A966, number(0x2AD7B1, scale), stated)


def make_webm(*parts: bytes) -> bytes:
    return EBML + element(0x18538067, *parts, unknown=True)


def test_a_stated_length_counts_ticks_of_a_stated_scale() -> None:
    content = make_webm(make_info(250.5, 10_000_000), VIDEO_TRACK, make_cluster(0, 0, 50, 100, 150))

    assert read_clip("webm", MemorySource(content)) == Clip(Fraction(2505, 1000), 4, Fraction(2))


def test_a_live_file_lasts_to_its_last_block() -> None:
    content = make_webm(
        make_info(),
        VIDEO_TRACK,
        make_cluster(0, 0, 500, unknown=True),
        make_cluster(1000, 0, 500, 1000, unknown=True),
    )

    assert read_clip("webm", MemorySource(content)) == Clip(Fraction(2), 5, Fraction(2))


def test_a_live_file_that_begins_late_lasts_from_there() -> None:
    content = make_webm(make_info(), VIDEO_TRACK, make_cluster(60_000, 0, 500, 1000))

    assert seconds("webm", content) == 1


def test_a_long_live_file_is_measured_from_its_end() -> None:
    clusters = [make_cluster(1000 * number, *range(0, 1000, 40)) for number in range(2500)]
    content = make_webm(make_info(), VIDEO_TRACK, *clusters)
    source = MemorySource(content)

    assert read_clip("webm", source) == Clip(Fraction(2_499_960, 1000))
    assert source.reads <= READS_MAX


class Stopping(MemorySource):
    """Answers so many reads, and then no more."""

    def __init__(self, content: bytes, answers: int) -> None:
        super().__init__(content)
        self._answers = answers

    def read(self, offset: int, count: int) -> bytes:
        return b"" if self.reads == self._answers else super().read(offset, count)


def test_a_source_that_stops_answering_leaves_what_was_stated() -> None:
    clusters = [make_cluster(1000 * number, *range(0, 1000, 40)) for number in range(900)]
    content = make_webm(make_info(900_000.0), VIDEO_TRACK, *clusters)

    assert read_clip("webm", Stopping(content, 1)) == Clip(Fraction(900))
    assert read_clip("webm", MemorySource(content), reads_max=1) == Clip(Fraction(900))


@pytest.mark.parametrize("format", ["mp4", "webm", "mkv", "mov"])
def test_a_source_that_answers_nothing_is_not_blamed_on_the_bytes(format: str) -> None:  # noqa: A002
    assert read_clip(format, Stopping(b"anything at all", 0)) is None


def test_what_stands_after_the_clusters_is_found_by_the_directory() -> None:
    clusters = make_cluster(0, 0, 500)

    def seek(kind: int, position: int) -> bytes:
        return element(0x4DBB, element(0x53AB, kind.to_bytes(4, "big")), number(0x53AC, position))

    head_bytes = len(element(0x114D9B74, seek(0x1549A966, 0), seek(0x1654AE6B, 0)))
    info = head_bytes + len(clusters)
    head = element(0x114D9B74, seek(0x1549A966, info), seek(0x1654AE6B, info + len(make_info(1000.0))))

    clip = read_clip("mkv", MemorySource(make_webm(head, clusters, make_info(1000.0), VIDEO_TRACK)))

    assert clip == Clip(Fraction(1), 2, Fraction(2))


@pytest.mark.parametrize("duration", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_a_length_that_is_none_is_not_taken(duration: float) -> None:
    assert seconds("mkv", make_webm(make_info(duration), VIDEO_TRACK)) is None


@pytest.mark.parametrize(
    "content",
    [
        EBML,
        make_webm(make_info(), VIDEO_TRACK),
        make_webm(make_info(), VIDEO_TRACK, make_cluster(0, 0)),
        make_webm(make_info(), b"\0" * 500),
        make_webm(*[element(0xEC)] * 50_000, make_info(1000.0)),
        make_webm(make_info(), VIDEO_TRACK * 6000, make_cluster(0, 0, 500)),
    ],
    ids=["no segment", "no clusters", "one picture", "junk", "endless elements", "endless tracks"],
)
def test_a_matroska_file_that_says_too_little_states_no_length(content: bytes) -> None:
    assert seconds("mkv", content) is None
