"""The media of rows: what is admitted, and the sentence for what is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.media_rows import (
    GEMMA,
    NEMOTRON,
    PNG,
    QWEN,
    TEXT_ONLY,
    audio,
    avi,
    check,
    fault_of,
    image,
    inline,
    line,
    speech,
    video,
    wav,
)

PLACE = "body.messages[0].content[0]."


@pytest.mark.parametrize(
    "part",
    [
        image("https://example.com/photo.jpg"),
        image("https://example.com/photo"),
        image("https://example.com/photo.php?x=1"),
        image(inline("image/png", PNG)),
        image(inline("application/octet-stream", PNG)),
        image(inline("", PNG)),
        {"type": "image_url", "image_url": {"url": "https://h/x.png", "detail": "low"}},
        speech(wav(2)),
        audio(inline("audio/x-wav", wav(2400))),
        audio("https://example.com/clip.mp3", duration_seconds=42),
        audio("https://example.com/clip.mp3", duration_seconds=2400),
        audio("https://example.com/clip.mp3"),
        video("https://example.com/clip.mp4", duration_seconds=60),
        video("https://example.com/clip"),
        video("HTTPS://example.com/clip.MOV?sig=a.avi", duration_seconds=0.5),
    ],
)
def test_what_the_contract_takes_is_admitted(part: dict[str, Any]) -> None:
    assert check(line(part, {"type": "text", "text": "what is it?"})).faults.sentences() == []


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (image("http://h/x.png"), "image_url.url is an http:// address; use https://"),
        (audio("http://h/x.mp3"), "audio_url.url is an http:// address; use https://"),
        (video("ftp://h/x.mp4"), "video_url.url must be an https:// address or a data: URI"),
        (video("clip.mp4"), "video_url.url must be an https:// address or a data: URI"),
        (image("https:///x.png"), "image_url.url is not a valid https:// address"),
        (image("https://h/" + "x" * 9000), "image_url.url is an address of over 8,192 characters"),
        (
            audio("https://h/x.wma"),
            "unsupported audio format 'wma': supported audio formats are wav, mp3, m4a, aac, ogg, opus, flac, aiff",
        ),
        (
            video("https://h/x.m3u8"),
            "unsupported video format 'm3u8': supported video formats are mp4, webm, mov, mkv, avi",
        ),
        (
            image("https://h/x.svg"),
            "unsupported image format 'svg': supported image formats are png, jpeg, webp, gif, bmp, tiff",
        ),
        (
            speech(wav(1), "wma"),
            "unsupported audio format 'wma': supported audio formats are wav, mp3, m4a, aac, ogg, opus, flac, aiff",
        ),
        (
            image(inline("video/mp4", PNG)),
            "unsupported image format 'video/mp4': supported image formats are png, jpeg, webp, gif, bmp, tiff",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "AAAA"}},
            PLACE + "input_audio.format must be a string such as 'wav' or 'mp3'",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            PLACE + "input_audio.data must be a non-empty string",
        ),
        (
            audio("https://h/x.mp3", duration_seconds=0),
            PLACE + "audio_url.duration_seconds must be a positive number",
        ),
        (
            audio("https://h/x.mp3", duration_seconds=-1.5),
            PLACE + "audio_url.duration_seconds must be a positive number",
        ),
        (
            audio("https://h/x.mp3", duration_seconds="42"),
            PLACE + "audio_url.duration_seconds must be a positive number",
        ),
        (
            audio("https://h/x.mp3", duration_seconds=True),
            PLACE + "audio_url.duration_seconds must be a positive number",
        ),
    ],
)
def test_what_it_does_not_take_is_refused_with_its_line(part: dict[str, Any], told: str) -> None:
    assert fault_of(part) == f"Line 1: {told}"


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (image("data:image/png;base64,####"), "Line 1: an embedded image is not valid base64: "),
        (
            image(inline("image/png", b"GIF89a" + bytes(20))),
            "Line 1: an embedded image is declared as png, but ",
        ),
        (image(inline("image/jpeg", PNG)), "Line 1: an embedded image is declared as jpeg, but "),
        (image(inline("image/png", PNG[:20])), "Line 1: an image can't be read: "),
        (
            video(inline("video/mp4", b"#EXTM3U\n#EXT-X-VERSION:3\n")),
            "Line 1: an embedded video file is declared as mp4, but ",
        ),
        (speech(PNG), "Line 1: an embedded audio file is declared as wav, but "),
        (
            audio(inline("", b"no idea what this is")),
            "Line 1: the format of an embedded audio file can't be told",
        ),
        (video("data:video/mp4,plain"), "Line 1: "),
    ],
)
def test_inline_bytes_that_are_not_what_they_are_said_to_be_are_refused(
    part: dict[str, Any], told: str
) -> None:
    assert fault_of(part).startswith(told)


def test_a_modality_without_an_encoder_is_named_with_the_model() -> None:
    assert fault_of(image("https://h/x.png"), spec=TEXT_ONLY) == (
        "Line 1: model 'qwen3-14b' has no image encoder and can't read a content part of type 'image_url'"
    )
    assert fault_of(audio("https://h/x.mp3"), spec=QWEN) == (
        "Line 1: model 'qwen3.8-27b' has no audio encoder and can't read a content part of type 'audio_url'"
    )


@pytest.mark.parametrize(
    ("spec", "part", "told"),
    [
        (
            GEMMA,
            image(inline("image/png", PNG + bytes(20 << 20))),
            "image exceeds the size limit (max 20 MB)",
        ),
        (GEMMA, speech(wav(1) + bytes(20 << 20)), "audio file exceeds the size limit (max 20 MB)"),
        (
            NEMOTRON,
            image(inline("image/png", PNG + bytes(20 << 20))),
            "image exceeds the size limit (max 20 MB)",
        ),
    ],
)
def test_an_inline_item_over_its_cap_is_refused_in_the_quoted_words(
    spec: Any, part: dict[str, Any], told: str
) -> None:
    assert fault_of(part, spec=spec) == f"Line 1: an embedded {told}"


def test_an_inline_item_of_exactly_its_cap_is_admitted() -> None:
    data = PNG + bytes((20 << 20) - len(PNG))
    assert check(line(image(inline("image/png", data)))).faults.sentences() == []


@pytest.mark.parametrize(
    ("spec", "fps", "part", "told"),
    [
        (
            GEMMA,
            None,
            audio("https://h/x.mp3", duration_seconds=45),
            "audio duration 45s exceeds the 30s maximum for model 'gemma4-12b'. Shorten or split this audio input.",
        ),
        (
            GEMMA,
            None,
            speech(wav(45)),
            "audio duration 45s exceeds the 30s maximum for model 'gemma4-12b'. Shorten or split this audio input.",
        ),
        (
            GEMMA,
            None,
            speech(b"\xff\xfb\x90\x64" + bytes(8000 * 45 - 4), "mp3"),
            (
                "audio duration is estimated at 45s, which exceeds the 30s maximum for model 'gemma4-12b'."
                " Set duration_seconds, or shorten or split this audio input."
            ),
        ),
        (
            GEMMA,
            None,
            video("https://h/x.mp4", duration_seconds=30.0004),
            "video duration 30.001s exceeds the 30s maximum for model 'gemma4-12b'. Shorten or split this video input.",
        ),
        (
            QWEN,
            "20",
            video("https://h/x.mp4", duration_seconds=45),
            (
                "video is 45 s; at the requested 20 fps the longest clip qwen3.8-27b takes is 38 s."
                " Shorten the clip or lower video_fps."
            ),
        ),
        (
            NEMOTRON,
            "20",
            video("https://h/x.mp4", duration_seconds=7),
            (
                "video is 7 s; at the requested 20 fps the longest clip nemotron-3-nano-omni-30b takes is 6 s."
                " Shorten the clip or lower video_fps."
            ),
        ),
        (
            QWEN,
            None,
            video("https://h/x.mp4", duration_seconds=780),
            "video duration 780s exceeds the 779s maximum for model 'qwen3.8-27b'. Shorten or split this video input.",
        ),
        (
            NEMOTRON,
            None,
            audio("https://h/x.mp3", duration_seconds=2401),
            (
                "audio duration 2401s exceeds the 2400s maximum for model 'nemotron-3-nano-omni-30b'."
                " Shorten or split this audio input."
            ),
        ),
    ],
)
def test_a_clip_over_the_models_ceiling_names_the_row(
    spec: Any, fps: str | None, part: dict[str, Any], told: str
) -> None:
    assert fault_of(part, spec=spec, fps=fps) == f"Row 'x': {told}"


@pytest.mark.parametrize(
    ("spec", "fps", "seconds"),
    [
        (QWEN, None, 779),
        (QWEN, "2", 389),
        (QWEN, "20", 38),
        (NEMOTRON, None, 60),
        (NEMOTRON, "2", 60),
        (NEMOTRON, "20", 6),
        (GEMMA, None, 30),
    ],
)
def test_a_clip_of_exactly_the_longest_length_is_admitted(spec: Any, fps: str | None, seconds: int) -> None:
    row = line(video("https://h/x.mp4", duration_seconds=seconds))
    assert check(row, spec=spec, fps=fps).faults.sentences() == []
    longer = line(video("https://h/x.mp4", duration_seconds=seconds + 0.01))
    assert len(check(longer, spec=spec, fps=fps).faults.sentences()) == 1


def test_a_clip_of_one_frame_is_refused_however_long_it_is_said_to_be() -> None:
    clip = inline("video/x-msvideo", avi(1, 1))
    told = (
        "Row 'x': video holds 1 frame; a clip has to hold at least 2. Send a single frame as an image part."
    )
    assert fault_of(video(clip)) == told
    assert fault_of(video(clip, duration_seconds=5)) == told
    assert check(line(video(inline("video/x-msvideo", avi(2, 1))))).faults.sentences() == []


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (audio("https://h/a.png"), "unsupported audio format 'png'"),
        (audio("https://h/a.webm"), "unsupported audio format 'webm'"),
        (image("https://h/a.mp4"), "unsupported image format 'mp4'"),
        (video("https://h/a.wav"), "unsupported video format 'wav'"),
    ],
)
def test_an_extension_of_other_media_is_refused_while_it_is_free(part: dict[str, Any], told: str) -> None:
    assert told in fault_of(part, spec=NEMOTRON)


def test_a_length_of_hundreds_of_digits_is_told_in_short() -> None:
    assert "audio duration 1e+308s exceeds" in fault_of(
        audio("https://h/a.mp3", duration_seconds=1e308), spec=NEMOTRON
    )
