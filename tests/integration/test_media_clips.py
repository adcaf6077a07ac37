"""Real clips of every container: what we read is what ffprobe reads, and what we read of damaged ones is bounded."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anex.media.durations import HOSTED_READS_MAX, read_clip, read_pictures
from anex.media.model import Clip, MediaUnreadable
from anex.media.window import READS_MAX
from tests.support.clips import RECIPES, UNSTATED, ClipShelf
from tests.support.containers import MemorySource

if TYPE_CHECKING:
    from pathlib import Path

FRAME_SECONDS = Fraction(1, 25)
UNTOLD = {"webm-live", "mkv-live"}
"""Clips of whose length ffprobe says nothing; its packets do."""
SHIFTED = {"mp4-fragments-indexed"}
"""ffprobe adds the delay that this writer repeats in each fragment: it says 1.4 s of 1.234."""
VIDEOS = sorted(name for name, recipe in RECIPES.items() if recipe.video)
SOUNDS = sorted(name for name, recipe in RECIPES.items() if not recipe.video)
EVERYTHING = sorted([*RECIPES, *UNSTATED])


def read(clips: ClipShelf, name: str) -> Clip:
    clip = read_clip({**RECIPES, **UNSTATED}[name].format, MemorySource(clips.read(name)))
    assert clip is not None
    return clip


def count_pictures(clips: ClipShelf, name: str) -> int:
    answer = clips.ask(clips.path(name), "-count_packets", "-select_streams", "v")
    return int(answer["streams"][0]["nb_read_packets"])


def last_packet_seconds(clips: ClipShelf, name: str) -> Fraction:
    packets = clips.ask(clips.path(name), "-show_packets")["packets"]
    return max(Fraction(packet["pts_time"]) + Fraction(packet["duration_time"]) for packet in packets)


@pytest.mark.parametrize("name", sorted(set(RECIPES) - UNTOLD - SHIFTED))
def test_the_length_is_that_of_ffprobe(clips: ClipShelf, name: str) -> None:
    rate = RECIPES[name].rate

    assert abs(read(clips, name).seconds - clips.seconds(name)) <= Fraction(1, rate)


@pytest.mark.parametrize("name", sorted(UNTOLD))
def test_the_length_of_a_live_clip_is_where_its_last_packet_ends(clips: ClipShelf, name: str) -> None:
    assert abs(read(clips, name).seconds - last_packet_seconds(clips, name)) <= FRAME_SECONDS


@pytest.mark.parametrize("name", sorted(SHIFTED))
def test_the_length_of_an_indexed_clip_is_what_was_recorded(clips: ClipShelf, name: str) -> None:
    assert abs(read(clips, name).seconds - Fraction(RECIPES[name].seconds)) <= FRAME_SECONDS


@pytest.mark.parametrize("name", SOUNDS)
def test_sound_is_measured_to_the_sample_or_the_containers_own_precision(clips: ClipShelf, name: str) -> None:
    tolerance = Fraction(1, 100) if RECIPES[name].format == "webm" else Fraction(1, 1000)

    clip = read(clips, name)

    assert abs(clip.seconds - Fraction(RECIPES[name].seconds)) <= tolerance
    assert (clip.frames, clip.frames_per_second) == (None, None)


@pytest.mark.parametrize("name", VIDEOS)
def test_pictures_and_their_rate_are_those_that_are_there(clips: ClipShelf, name: str) -> None:
    clip = read(clips, name)

    assert clip.frames == count_pictures(clips, name)
    assert clip.frames_per_second == RECIPES[name].rate


@pytest.mark.parametrize("name", sorted(UNSTATED))
def test_a_container_that_states_no_length_gives_none(clips: ClipShelf, name: str) -> None:
    assert read_clip(UNSTATED[name].format, MemorySource(clips.read(name))) is None


@pytest.mark.parametrize(("name", "frames"), [("avi-2fps", 6), ("avi-one-frame", 1)])
def test_an_avi_file_still_states_its_pictures(clips: ClipShelf, name: str, frames: int) -> None:
    source = MemorySource(clips.read(name))

    assert read_pictures("avi", source) == (frames, Fraction(UNSTATED[name].rate))


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_clip_takes_few_reads(clips: ClipShelf, name: str) -> None:
    source = MemorySource(clips.read(name))

    assert read_clip(RECIPES[name].format, source, reads_max=HOSTED_READS_MAX) == read(clips, name)
    assert source.reads <= HOSTED_READS_MAX


@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_clip_that_was_cut_off_is_no_longer_than_it_was(clips: ClipShelf, name: str, kept: float) -> None:
    recipe = {**RECIPES, **UNSTATED}[name]
    content = clips.read(name)

    clip = read_clip(recipe.format, MemorySource(content[: int(len(content) * kept)]))

    assert clip is None or 0 < clip.seconds <= Fraction(recipe.seconds) + Fraction(1, 10)


def test_a_movie_at_the_front_survives_a_cut_and_one_at_the_end_does_not(clips: ClipShelf) -> None:
    front, back = clips.read("mp4-h264-faststart"), clips.read("mp4-h264")

    assert read_clip("mp4", MemorySource(front[:-1000])) == read_clip("mp4", MemorySource(front))
    assert read_clip("mp4", MemorySource(back[:-1000])) is None


def test_radio_that_joins_files_is_as_long_as_all_of_them(clips: ClipShelf, tmp_path: Path) -> None:
    chain = clips.read("ogg-vorbis") + clips.read("ogg-opus") + clips.read("ogg-flac")
    path = tmp_path / "chain.ogg"
    path.write_bytes(chain)
    assert Fraction(clips.ask(path)["format"]["duration"]) < 3  # ffprobe looks at one of them

    clip = read_clip("ogg", MemorySource(chain))

    assert clip is not None
    assert abs(clip.seconds - 3 * Fraction("1.234")) < Fraction(1, 500)


def read_anything(format: str, content: bytes) -> None:  # noqa: A002
    """Read bytes that may be anything; ``MemorySource`` fails on a read out of bounds."""
    source = MemorySource(content)
    try:
        clip = read_clip(format, source)
        read_pictures(format, source)
    except MediaUnreadable:
        return
    finally:
        assert source.reads <= READS_MAX + READS_MAX // 4 + 1
    assert clip is None or (clip.seconds > 0 and (clip.frames is None or clip.frames >= 0))
    assert clip is None or clip.frames_per_second is None or clip.frames_per_second > 0


MUTATIONS = st.lists(
    st.tuples(st.floats(0, 1), st.binary(max_size=8), st.integers(0, 16)), min_size=1, max_size=6
)


@given(name=st.sampled_from(EVERYTHING), mutations=MUTATIONS, kept=st.one_of(st.just(1.0), st.floats(0, 1)))
@settings(derandomize=True, max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_clip_with_other_bytes_here_and_there_breaks_nothing(
    clips: ClipShelf, name: str, mutations: list[tuple[float, bytes, int]], kept: float
) -> None:
    content = bytearray(clips.read(name))
    for place, inserted, dropped in mutations:
        # Most of what can break lies in the first and the last hundreds of bytes.
        near = int(place * 800) if len(inserted) % 2 else len(content) - int(place * 800)
        content[max(0, near) : max(0, near) + dropped] = inserted

    read_anything({**RECIPES, **UNSTATED}[name].format, bytes(content[: int(len(content) * kept)]))
