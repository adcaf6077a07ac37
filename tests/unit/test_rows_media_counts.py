"""What the media of rows come to, and what is asked of their hosts."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from anex.rows.check import HOSTED_MAX
from anex.rows.media import RowMedia
from anex.rows.media_items import Length, digest_address
from tests.support.media_rows import (
    GEMMA,
    NEMOTRON,
    QWEN,
    audio,
    avi,
    check,
    image,
    inline,
    line,
    measure,
    speech,
    video,
    wav,
)
from tests.support.row_samples import chat_line


def test_a_slow_clip_is_sampled_charged_and_judged_at_its_own_rate() -> None:
    slow = video(inline("video/x-msvideo", avi(200, 2)), duration_seconds=100)
    assert check(line(slow), spec=QWEN, fps="20").faults.sentences() == []
    assert measure(slow, spec=QWEN, video_fps=Fraction(20)).tokens == 168 * (200 + 1)
    assert measure(slow, spec=QWEN).tokens == 168 * (100 + 1)


def test_more_items_than_a_model_takes_are_not_refused_up_front() -> None:
    parts = [image("https://h/x.png")] * 9
    assert check(line(*parts)).faults.sentences() == []
    assert measure(*parts) == RowMedia(9 * 1280, 9, 0, 0, frozenset({"image"}))


@pytest.mark.parametrize(
    ("spec", "part", "tokens", "milliseconds"),
    [
        (NEMOTRON, audio("https://h/x.mp3", duration_seconds=2400), 30_000, 2_400_000),
        (NEMOTRON, audio("https://h/x.mp3", duration_seconds=1.01), 13, 1010),
        (GEMMA, audio("https://h/x.mp3", duration_seconds=30), 750, 30_000),
        (NEMOTRON, video("https://h/x.mp4", duration_seconds=60), 30_976, 60_000),
        (QWEN, video("https://h/x.mp4", duration_seconds=30.1), 168 * 32, 30_100),
        (GEMMA, video("https://h/x.mp4", duration_seconds=3), 70 * 4, 3000),
        (GEMMA, video("https://h/x.mp4", duration_seconds=30), 70 * 31, 30_000),
        (NEMOTRON, speech(wav(1.5)), 19, 1500),
    ],
)
def test_a_clip_makes_the_tokens_of_the_catalog(
    spec: Any, part: dict[str, Any], tokens: int, milliseconds: int
) -> None:
    found = measure(part, spec=spec)
    assert (found.tokens, found.clips, found.clip_milliseconds) == (tokens, 1, milliseconds)


def test_decimal_seconds_are_no_binary_fractions() -> None:
    """30.1 s at 20 frames a second are 602 frames; as floats they are 603."""
    part = video("https://h/x.mp4", duration_seconds=30.1)
    assert measure(part, spec=QWEN, video_fps=Fraction(20)).tokens == 168 * 603


def test_a_clip_of_unknown_length_is_assumed_at_what_fits_and_never_refuses_its_row() -> None:
    clip = audio("https://h/x.mp3")
    assert measure(clip).clip_milliseconds == 2_400_000
    beside = measure(clip, text_tokens=10_000)
    assert beside.tokens + 10_000 <= 32_767
    assert beside.clip_milliseconds == (32_767 - 10_000) * 1000 // 12_500 * 1000
    both = measure(clip, video("https://h/x.mp4"), image("https://h/x.png"), text_tokens=1000)
    assert both.tokens + 1000 <= 32_767
    assert (both.images, both.clips, both.kinds) == (1, 2, frozenset({"image", "audio", "video"}))
    assert measure(clip, text_tokens=40_000).tokens == 0


def test_what_a_host_said_is_used_and_what_was_only_estimated_is_cut_to_the_ceiling() -> None:
    url = "https://h/x.mp3?secret=1"
    stated = {digest_address(url): Length(Fraction(9), "probed")}
    assert measure(audio(url), lengths=stated).clip_milliseconds == 9000
    estimated = {digest_address(url): Length(Fraction(10_000), "estimated")}
    assert measure(audio(url), lengths=estimated).clip_milliseconds == 2_400_000
    assert "secret" not in json.dumps(list(stated))


def test_clips_that_only_their_hosts_can_measure_are_listed_once_with_their_first_row() -> None:
    rows = [
        line(audio("https://h/a.mp3"), image("https://h/x.png"), row_id="1"),
        line(audio("https://h/a.mp3"), video("https://h/b"), row_id="2"),
        line(audio("https://h/c.mp3", duration_seconds=3), speech(wav(1)), row_id="3"),
    ]
    hosted = check(*rows).hosted
    assert [(each.custom_id, each.clip.address, each.clip.format) for each in hosted] == [
        ("1", "https://h/a.mp3", "mp3"),
        ("2", "https://h/b", None),
    ]
    many = [line(audio(f"https://h/{number}.mp3"), row_id=f"{number}") for number in range(60)]
    assert [each.custom_id for each in check(*many).hosted] == [f"{number}" for number in range(HOSTED_MAX)]


def test_types_written_with_escapes_are_media_all_the_same() -> None:
    row = line(image("http://h/x.png")).replace(
        b'"image_url","image_url"', b'"image\\u005furl","image\\u005furl"'
    )
    assert check(row).faults.sentences() == ["Line 1: image_url.url is an http:// address; use https://"]


def test_a_mistake_in_one_row_hides_no_other() -> None:
    rows = [
        line(image("http://h/x.png")),
        chat_line("y", method="GET"),
        line(video("https://h/x.ts"), row_id="z"),
    ]
    assert [fault.split(":")[0] for fault in check(*rows).faults.sentences()] == [
        "Line 1",
        "Line 2",
        "Line 3",
    ]
