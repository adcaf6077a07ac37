"""Asking hosts about clips, over TLS: what is learnt from whom, and of how many at once."""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from anex.media.durations import read_clip
from anex.media.hosted import HostedClip, ProbeLimits, Sized, Stated, TypeRefused, Unknown, probe_clips
from anex.media.model import Clip, MediaUnreadable
from anex.media.ranges import BLOCK_BYTES
from anex.outbound import Outbound
from tests.support.clips import RECIPES
from tests.support.containers import MemorySource, box, clock, trak
from tests.support.media_host import (
    PATIENT,
    STATED_WAV,
    WAV,
    MediaFile,
    MediaHost,
    probe,
    read_through,
    redirect,
    run_media_host,
)
from tests.support.outbound_calls import WAIT_SECONDS
from tests.support.tls_server import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from anex.media.model import ByteSource, MediaFormat
    from tests.support.clips import ClipShelf
    from tests.support.tls_server import Exchange

CLIPS = [
    "mp4-h264",
    "mp4-h264-faststart",
    "mp4-fragments",
    "mov-h264",
    "webm-vp8",
    "webm-live",
    "mkv-h264",
    "m4a-aac",
    "wav-16",
    "aiff",
    "flac",
    "ogg-vorbis",
    "opus",
    "mp3",
]
AAC = MediaFile(b"\xff\xf1\x50\x80" + bytes(996), "audio/aac")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[MediaHost]:
    with run_media_host(tmp_path, ["inside.test"]) as host:
        yield host


def number_clips(host: MediaHost, count: int) -> list[HostedClip]:
    host.files |= {f"/{number}.wav": WAV for number in range(count)}
    return [HostedClip(host.server.url(f"/{number}.wav"), "audio", "wav") for number in range(count)]


class TestWhatIsLearnt:
    def test_a_clip_that_states_its_length_costs_a_head_and_a_range(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = WAV

        assert probe(host, "/clip.wav") == STATED_WAV
        assert host.methods() == ["HEAD", "GET"]
        assert host.ranges() == [(0, BLOCK_BYTES - 1)]
        assert host.sent_bytes == BLOCK_BYTES

    @pytest.mark.parametrize("name", CLIPS)
    def test_a_real_clip_is_read_as_if_it_were_here(
        self, name: str, host: MediaHost, clips: ClipShelf
    ) -> None:
        content, named = clips.read(name), RECIPES[name].format
        host.files["/clip"] = MediaFile(content)
        here = read_clip(named, MemorySource(content))

        assert here is not None
        assert probe(host, "/clip", named) == Stated(here, named)  # type: ignore[arg-type]

    def test_the_movie_at_the_end_of_a_large_file_is_found_by_a_few_ranges(self, host: MediaHost) -> None:
        size_bytes, begin = 3 << 30, 32
        movie = box(
            b"moov", clock(b"mvhd", 1000, 90_000), trak(b"vide", 1000, 90_000, samples=90, presented=90_000)
        )
        samples_bytes = size_bytes - begin - len(movie) + 16
        content = box(b"ftyp", b"isom", bytes(4)) + struct.pack(">I4sQ", 1, b"mdat", samples_bytes)
        host.files["/clip.mp4"] = MediaFile(content, "video/mp4", size_bytes, movie)

        found = probe(host, "/clip.mp4", "mp4")

        assert found == Stated(Clip(Fraction(90), 90, Fraction(1)), "mp4")
        assert len(host.ranges()) == 2
        assert host.sent_bytes < 3 * BLOCK_BYTES

    def test_a_clip_that_states_no_length_has_a_size(self, host: MediaHost) -> None:
        host.files["/clip.aac"] = AAC

        assert probe(host, "/clip.aac", "aac") == Sized(1000, "aac")

    @pytest.mark.parametrize("status", [403, 404, 405, 501])
    def test_a_host_that_refuses_head_is_asked_for_a_range(self, status: int, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, head_status=status)

        assert probe(host, "/clip.wav") == STATED_WAV

    @pytest.mark.parametrize("status", [403, 404, 500])
    def test_a_host_that_refuses_get_has_told_the_size(self, status: int, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, status=status)

        assert probe(host, "/clip.wav") == Sized(WAV.whole_bytes, "wav")

    @pytest.mark.parametrize("status", [204, 304, 404, 410, 500])
    def test_a_host_that_has_nothing_leaves_it_unknown(self, status: int, host: MediaHost) -> None:
        host.files["/clip.wav"] = MediaFile(
            b"", "application/octet-stream", status=status, head_status=status
        )

        assert probe(host, "/clip.wav") == Unknown()
        assert probe(host, "/clip", None) == Unknown()

    def test_a_host_that_makes_a_get_of_head_and_forgets_the_size_has_told_none(
        self, host: MediaHost
    ) -> None:
        def respond(exchange: Exchange) -> None:
            if exchange.request.method == "HEAD":
                exchange.respond(200)
            else:
                host.serve(exchange, replace(WAV, tells_size=False))

        host.files["/clip.wav"] = respond

        assert probe(host, "/clip.wav") == STATED_WAV

    @pytest.mark.parametrize("status", [202, 203])
    def test_the_size_of_another_answer_is_not_the_clips(self, status: int, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, status=status, head_status=status)

        assert probe(host, "/clip.wav") == Unknown()

    def test_a_host_that_is_not_there_leaves_it_unknown(self, host: MediaHost) -> None:
        def find_nothing(_: str) -> list[str]:
            raise OSError

        clip = HostedClip(host.server.url("/clip.wav"), "audio", "wav")
        outbound = Outbound(host.server.policy, resolve=find_nothing)

        assert probe_clips(outbound, [clip], PATIENT, read_clip) == {clip.url: Unknown()}

    def test_a_certificate_that_is_not_trusted_leaves_it_unknown(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = WAV
        clip = HostedClip(host.server.url("/clip.wav", "other.test"), "audio", "wav")
        outbound = Outbound(host.server.policy, resolve=host.server.resolve)

        assert probe_clips(outbound, [clip], PATIENT, read_clip) == {clip.url: Unknown()}
        assert host.methods() == []

    def test_a_page_in_place_of_a_clip_is_not_measured(self, host: MediaHost) -> None:
        host.files["/clip"] = MediaFile(b"<!DOCTYPE html><title>Sign in</title>" + bytes(4000), "text/html")

        assert probe(host, "/clip", "wav") == Unknown()
        assert probe(host, "/clip", "aac") == Unknown()

    def test_bytes_that_a_reader_gives_up_on_are_not_measured(self, host: MediaHost) -> None:
        def give_up(_: MediaFormat, __: ByteSource) -> Clip | None:
            raise MediaUnreadable("broken")

        host.files["/clip.wav"] = WAV

        assert probe(host, "/clip.wav", read=give_up) == Unknown()

    def test_the_size_of_a_compressed_answer_is_not_the_clips(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, headers={"Content-Encoding": "gzip"})

        assert probe(host, "/clip.wav") == Unknown()

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
            b"HTTP/1.1 206 Part\r\nContent-Length: 5\r\nContent-Range: bytes 7-11/99\r\n\r\nhello",
            b"HTTP/1.1 206 Part\r\nContent-Length: 5\r\nContent-Range: bytes 0-"
            + b"9" * 5000
            + b"/9\r\n\r\nhello",
            b"HTTP/1.1 206 Part\r\nContent-Length: 5\r\nContent-Type: multipart/byteranges\r\n\r\nhello",
        ],
    )
    def test_garbage_leaves_it_unknown(self, answer: bytes, host: MediaHost) -> None:
        def respond(exchange: Exchange) -> None:
            if exchange.request.method == "HEAD":
                exchange.respond(405)
            else:
                exchange.send(answer)

        host.files["/clip"] = respond

        assert probe(host, "/clip") == Unknown()
        assert probe(host, "/clip", None) == Unknown()
        assert host.methods() == ["HEAD", "GET"] * 2


class TestTypes:
    """Of clips whose URL has no extension."""

    @pytest.mark.parametrize("head_status", [200, 405])
    @pytest.mark.parametrize("content_type", ["audio/wav", "audio/x-wav; charset=binary"])
    def test_a_supported_type_names_the_format(
        self, content_type: str, head_status: int, host: MediaHost
    ) -> None:
        host.files["/clip"] = replace(WAV, content_type=content_type, head_status=head_status)

        assert probe(host, "/clip", None) == STATED_WAV

    @pytest.mark.parametrize(
        "content_type", ["application/octet-stream", "text/html", "audio/x-ms-wma", "image/png"]
    )
    def test_another_type_is_refused_at_the_head(self, content_type: str, host: MediaHost) -> None:
        host.files["/clip"] = replace(WAV, content_type=f"{content_type}; charset=utf-8")

        assert probe(host, "/clip", None) == TypeRefused(content_type)
        assert host.methods() == ["HEAD"]

    def test_another_type_is_refused_where_only_get_is_answered(self, host: MediaHost) -> None:
        host.files["/clip"] = replace(WAV, content_type="application/octet-stream", head_status=405)

        assert probe(host, "/clip", None) == TypeRefused("application/octet-stream")

    def test_the_type_of_a_refusal_is_that_of_its_page(self, host: MediaHost) -> None:
        def respond(exchange: Exchange) -> None:
            refusal = MediaFile(b"", "text/html", head_status=405)
            host.serve(exchange, refusal if exchange.request.method == "HEAD" else WAV)

        host.files["/clip"] = respond

        assert probe(host, "/clip", None) == STATED_WAV

    def test_a_long_type_is_cut(self, host: MediaHost) -> None:
        host.files["/clip"] = replace(WAV, content_type="x/" + "y" * 1000)

        assert probe(host, "/clip", None) == TypeRefused("x/" + "y" * 62)

    def test_no_type_names_nothing(self, host: MediaHost) -> None:
        host.files["/clip"] = replace(WAV, content_type=None)

        assert probe(host, "/clip", None) == Unknown()

    def test_a_type_says_nothing_about_a_clip_with_an_extension(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, content_type="application/octet-stream")

        assert probe(host, "/clip.wav") == STATED_WAV


class TestRedirects:
    def test_the_ranges_go_where_the_first_one_ended(self, host: MediaHost) -> None:
        host.files |= {"/1": redirect("/2"), "/2": redirect("/3"), "/3": redirect("/clip"), "/clip": WAV}

        assert probe(host, "/1", read=read_through) == Sized(WAV.whole_bytes, "wav")
        assert [each.path for each in host.server.requests] == ["/1", "/2", "/3", "/clip"] * 2 + ["/clip"] * 2

    def test_a_fourth_is_not_followed(self, host: MediaHost) -> None:
        host.files |= {f"/{number}": redirect(f"/{number + 1}") for number in range(4)}
        host.files["/4"] = WAV

        assert probe(host, "/0") == Unknown()
        assert len(host.methods()) == 4

    @pytest.mark.parametrize("method", ["HEAD", "GET"])
    def test_one_to_a_private_address_ends_it(self, method: str, host: MediaHost) -> None:
        """The private name has a second address that would answer: it is the guard that says no."""

        def lead_inside(exchange: Exchange) -> None:
            if exchange.request.method == method:
                redirect(host.server.url("/clip.wav", "inside.test"))(exchange)
            else:
                host.serve(exchange, WAV)

        host.files |= {"/1.wav": redirect("/2"), "/2": lead_inside, "/clip.wav": WAV}
        outbound = Outbound(
            host.server.policy,
            resolve=lambda name: [LOOPBACK, "10.0.0.1"] if name == "inside.test" else [LOOPBACK],
        )
        clip = HostedClip(host.server.url("/1.wav"), "audio", "wav")

        assert probe_clips(outbound, [clip], PATIENT, read_clip) == {clip.url: Unknown()}
        assert "/clip.wav" not in {each.path for each in host.server.requests}


class TestManyClips:
    def test_the_first_distinct_ones_are_asked_about_ten_at_once(self, host: MediaHost) -> None:
        clips = number_clips(host, 60)
        host.hold_until(PATIENT.at_once)

        found = probe_clips(Outbound(host.server.policy), [*clips[:30], *clips], PATIENT, read_clip)

        assert found == {clip.url: STATED_WAV for clip in clips[:48]}
        assert list(found) == [clip.url for clip in clips[:48]]
        assert host.at_once_max == 10
        assert len({each.path for each in host.server.requests}) == 48
        assert len(host.methods()) == 2 * 48

    def test_the_first_of_an_address_speaks_for_all(self, host: MediaHost) -> None:
        host.files["/clip"] = WAV
        url = host.server.url("/clip")
        clips = [HostedClip(url, "audio", "wav"), HostedClip(url, "video", "mp4")]

        assert probe_clips(Outbound(host.server.policy), clips, PATIENT, read_clip) == {url: STATED_WAV}

    def test_none_are_begun_after_a_stop(self, host: MediaHost) -> None:
        clips = number_clips(host, 9)
        limits = ProbeLimits(at_once=1, seconds_each=WAIT_SECONDS)

        def stop() -> bool:
            return len(host.methods()) == 4

        found = probe_clips(Outbound(host.server.policy), clips, limits, read_clip, stop)

        assert found == {clip.url: STATED_WAV for clip in clips[:2]}
        assert len(host.methods()) == 4

    def test_no_clips_are_no_trouble(self, host: MediaHost) -> None:
        assert probe_clips(Outbound(host.server.policy), [], PATIENT, read_clip) == {}

    def test_the_log_counts_and_names_nobody(self, host: MediaHost) -> None:
        host.files |= {"/1.wav": WAV, "/2.aac": AAC, "/3": replace(WAV, content_type="text/html")}
        named: Sequence[tuple[str, MediaFormat | None]] = [
            ("/1.wav", "wav"),
            ("/2.aac", "aac"),
            ("/3", None),
            ("/4", None),
        ]
        clips = [HostedClip(host.server.url(f"{path}?token=secret"), "audio", each) for path, each in named]

        with capture_logs() as logs:
            probe_clips(Outbound(host.server.policy), clips, PATIENT, read_clip)

        counts = {"clips": 4, "asked": 4, "stated": 1, "sized": 1, "unknown": 1, "refused": 1}
        assert logs == [{"event": "clips_probed", "log_level": "info", **counts}]
