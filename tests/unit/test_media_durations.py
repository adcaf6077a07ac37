"""Lengths in containers made by hand: what real encoders write is tested beside ffprobe (test_media_clips.py)."""

from __future__ import annotations

import struct
from fractions import Fraction

import pytest

from anex.media.durations import read_clip
from anex.media.model import Clip, MediaUnreadable
from tests.support.containers import (
    LargeSource,
    MemorySource,
    chunk,
    opus_head,
    page,
    riff,
    wav_format,
)

SECOND = b"\0" * 16_000
"""Of sound in a WAV file, by ``wav_format``."""
OPUS_SECOND = 48_000


def seconds(format: str, content: bytes) -> Fraction | None:  # noqa: A002
    clip = read_clip(format, MemorySource(content))
    return None if clip is None else clip.seconds


@pytest.mark.parametrize("format", ["mp4", "mov", "m4a", "webm", "mkv", "wav", "aiff", "flac", "ogg", "opus"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\xfd", b"\x89PNG\r\n\x1a\n\xff\xff\xff\xff" * 9])
def test_bytes_of_another_kind_are_refused(format: str, content: bytes) -> None:  # noqa: A002
    with pytest.raises(MediaUnreadable, match=r"the bytes are not an? "):
        read_clip(format, MemorySource(content))


@pytest.mark.parametrize("format", ["aac", "avi", "wma", "png"])
def test_formats_that_state_no_length_are_not_even_read(format: str) -> None:  # noqa: A002
    source = MemorySource(b"anything")

    assert read_clip(format, source) is None
    assert source.reads == 0


# WAV


def test_a_list_before_the_format_and_odd_chunks_are_passed_over() -> None:
    content = riff(b"WAVE", chunk(b"LIST", b"INFOx"), wav_format(), chunk(b"data", SECOND))

    assert seconds("wav", content) == 1


@pytest.mark.parametrize("stated", [0, 0xFFFFFFFF, 10**6])
def test_samples_that_are_there_count_not_what_a_writer_to_a_pipe_states(stated: int) -> None:
    assert seconds("wav", riff(b"WAVE", wav_format(), chunk(b"data", SECOND, stated))) == 1


def test_a_stated_size_ends_the_samples() -> None:
    assert seconds("wav", riff(b"WAVE", wav_format(), chunk(b"data", SECOND), chunk(b"LIST", SECOND))) == 1


def test_an_extensible_format_names_the_real_one_further_on() -> None:
    extension = struct.pack("<HHIH", 22, 16, 4, 1) + b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
    content = riff(b"WAVE", wav_format(0xFFFE, rest=extension), chunk(b"data", SECOND))

    assert seconds("wav", content) == 1


def test_a_file_over_4_gib_holds_its_size_in_a_chunk_of_its_own() -> None:
    data_bytes = 5 << 30
    ds64 = chunk(b"ds64", struct.pack("<QQQI", data_bytes + 80, data_bytes, 0, 0))
    head = riff(b"WAVE", ds64, wav_format(), chunk(b"data", b"", 0xFFFFFFFF), mark=b"RF64")
    source = LargeSource(head, len(head) + data_bytes + 100)

    assert read_clip("wav", source) == Clip(Fraction(data_bytes, 16_000))
    assert source.reads == 1


def test_a_compressed_format_goes_by_its_sample_count() -> None:
    fact = chunk(b"fact", struct.pack("<I", 12_000))

    assert seconds("wav", riff(b"WAVE", wav_format(2), fact, chunk(b"data", SECOND))) == Fraction(3, 2)
    assert seconds("wav", riff(b"WAVE", wav_format(2), chunk(b"data", SECOND))) == 1


@pytest.mark.parametrize(
    "content",
    [
        riff(b"WAVE"),
        riff(b"WAVE", chunk(b"data", SECOND)),
        riff(b"WAVE", wav_format(), chunk(b"data", b"")),
        riff(b"WAVE", wav_format(rate=0), chunk(b"data", SECOND)),
        riff(b"WAVE", wav_format(block_bytes=0), chunk(b"data", SECOND)),
        riff(b"WAVE", *[chunk(b"junk", b"")] * 50_000, wav_format(), chunk(b"data", SECOND)),
    ],
    ids=["nothing", "no format", "no samples", "no rate", "no blocks", "endless chunks"],
)
def test_a_wav_file_that_says_too_little_states_no_length(content: bytes) -> None:
    assert seconds("wav", content) is None


# AIFF, FLAC, MP3


def make_aiff(frames: int, rate: bytes) -> bytes:
    common = b"COMM" + struct.pack(">IHIH", 18, 2, frames, 16) + rate
    return b"FORM" + struct.pack(">I", 4 + len(common)) + b"AIFF" + common


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("400eac44000000000000", Fraction(88_200, 44_100)),
        ("400dac44000000000000", Fraction(88_200, 22_050)),
        ("400eac4480000000000000"[:20], Fraction(88_200) / Fraction(88_201, 2)),
        ("c00eac44000000000000", None),
        ("7fffac44000000000000", None),
        ("00000000000000000000", None),
    ],
    ids=["44100", "22050", "44100.5", "negative", "infinite", "zero"],
)
def test_the_rate_of_an_aiff_file_is_a_float_of_80_bits(rate: str, expected: Fraction | None) -> None:
    assert seconds("aiff", make_aiff(88_200, bytes.fromhex(rate))) == expected


def test_a_piped_aiff_or_flac_file_states_no_length() -> None:
    streaminfo = (44_100 << 44 | 1 << 41 | 15 << 36).to_bytes(8, "big").rjust(18, b"\0") + bytes(16)

    assert seconds("aiff", make_aiff(0, bytes.fromhex("400eac44000000000000"))) is None
    assert seconds("flac", b"fLaC\x80\0\0\x22" + streaminfo) is None


def test_flac_after_a_tag_is_found() -> None:
    streaminfo = (44_100 << 44 | 1 << 41 | 15 << 36 | 66_150).to_bytes(8, "big").rjust(18, b"\0") + bytes(16)
    tag = b"ID3\x04\0\0\0\0\x01\x00" + bytes(128)

    assert seconds("flac", tag + b"fLaC\x80\0\0\x22" + streaminfo) == Fraction(3, 2)


def test_the_header_of_the_fraunhofer_encoder_states_frames() -> None:
    head = b"\xff\xfb\x90\x64"
    header = b"VBRI" + struct.pack(">HHHII", 1, 0, 75, 99_999, 100)

    assert seconds("mp3", head + bytes(32) + header + bytes(300)) == Fraction(100 * 1152, 44_100)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfb\x90\x64" + bytes(400), b"ID3\x04\0\0\x7f\x7f\x7f\x7f", b"\xff" * 9000, b"Xing" * 90],
)
def test_an_mp3_file_without_such_a_header_states_no_length(content: bytes) -> None:
    assert seconds("mp3", content) is None


def test_padding_that_is_longer_than_the_sound_leaves_no_length() -> None:
    header = b"Info" + struct.pack(">II", 1, 1) + b"LAME3.100" + bytes(12) + b"\xff\xff\xff"

    assert seconds("mp3", b"\xff\xfb\x90\x64" + bytes(32) + header + bytes(300)) is None


# Ogg


def test_what_opus_skips_at_its_start_is_no_sound() -> None:
    content = opus_head(7) + page(7, 0) + page(7, 2 * OPUS_SECOND + 312, packets=50)

    assert seconds("opus", content) == 2


def test_links_of_a_chain_add_up() -> None:
    link = [opus_head(serial) + page(serial, OPUS_SECOND + 312, packets=20) for serial in (1, 2, 3)]

    assert seconds("ogg", b"".join(link)) == 3


def test_the_longest_of_streams_side_by_side_counts() -> None:
    heads = opus_head(1) + opus_head(2)
    pages = [(1, 1), (2, 3), (1, 2)]
    content = heads + b"".join(page(at, end * OPUS_SECOND + 312, packets=30) for at, end in pages)

    assert seconds("ogg", content) == 3


def test_a_cut_of_a_live_stream_begins_where_its_first_page_may_begin() -> None:
    content = opus_head(1, 0) + page(1, 1000 * OPUS_SECOND) + page(1, 1010 * OPUS_SECOND)

    assert seconds("opus", content) == 10 + Fraction(5760, OPUS_SECOND)


def test_the_last_page_is_found_in_a_long_file_by_its_end() -> None:
    middle = b"".join(page(1, number, b"OggS" * 60, packets=200) for number in range(400, 1000))
    content = opus_head(1, 0) + middle + page(1, 90 * OPUS_SECOND, packets=20)
    source = MemorySource(content)

    assert read_clip("ogg", source) == Clip(Fraction(90))
    assert source.reads < 8


@pytest.mark.parametrize(
    "content",
    [
        b"OggS",
        opus_head(1),
        page(1, 0, b"\x01vorbis" + bytes(30), first=True) + page(1, 9),
        opus_head(1) + b"?" * 99,
    ],
    ids=["a mark", "no pages", "rate 0", "junk"],
)
def test_an_ogg_file_that_says_too_little_states_no_length(content: bytes) -> None:
    assert seconds("ogg", content) is None


def test_a_block_of_plain_samples_is_as_large_as_its_samples_whatever_the_head_says() -> None:
    """A head that lied made 20 seconds less than a thousandth."""
    body = struct.pack("<HHIIHH", 1, 1, 8000, 16_000, 60_000, 16)
    assert seconds("wav", riff(b"WAVE", chunk(b"fmt ", body), chunk(b"data", SECOND * 20))) == 20


def test_two_mp3_files_in_one_state_no_length() -> None:
    """The first one's header speaks of the first alone."""
    header = b"Xing" + struct.pack(">III", 3, 100, 40_000)
    one = (b"\xff\xfb\x90\x64" + bytes(32) + header).ljust(40_000, b"\0")
    assert seconds("mp3", one) == Fraction(100 * 1152, 44_100)
    assert seconds("mp3", one + bytes(128)) == Fraction(100 * 1152, 44_100)
    assert seconds("mp3", one + one) is None
