"""Asking hosts about clips, over TLS: how little a host can take from us that knows no ranges, changes its mind, or has no end."""

from __future__ import annotations

import struct
import threading
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from anex.media.durations import read_clip
from anex.media.hosted import Probed, ProbeLimits, Sized, Stated, Unknown
from anex.media.model import Clip
from anex.media.ranges import BLOCK_BYTES
from tests.support.containers import MemorySource, box, clock, trak
from tests.support.media_host import (
    PATIENT,
    SECONDS,
    STATED_WAV,
    WAV,
    MediaFile,
    MediaHost,
    make_wav,
    probe,
    read_through,
    run_media_host,
)
from tests.support.outbound_calls import SHORT_SECONDS, WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anex.media.model import ByteSource, MediaFormat
    from tests.support.clips import ClipShelf
    from tests.support.tls_server import Exchange

HANDSHAKE_SECONDS = 2.0
"""A limit that is to pass after an answer has come."""
SOCKETS_MAX_BYTES = 16 << 20
"""What the kernel takes from a server beyond what the client reads."""
PART = 206


@pytest.fixture
def host(tmp_path: Path) -> Iterator[MediaHost]:
    with run_media_host(tmp_path) as host:
        yield host


class TestHostsWithoutRanges:
    def test_the_head_says_what_it_says(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, knows_ranges=False)

        assert probe(host, "/clip.wav") == STATED_WAV

    @pytest.mark.parametrize(("name", "named"), [("mp4-h264", "mp4"), ("ogg-vorbis", "ogg")])
    def test_a_small_file_is_there_to_its_end(
        self, name: str, named: MediaFormat, host: MediaHost, clips: ClipShelf
    ) -> None:
        content = clips.read(name)
        host.files["/clip"] = MediaFile(content, knows_ranges=False, tells_size=False, head_status=405)
        here = read_clip(named, MemorySource(content))

        assert here is not None
        assert probe(host, "/clip", named) == Stated(here, named)

    def test_what_comes_before_the_bound_is_within_reach(self, host: MediaHost) -> None:
        movie = box(b"moov", clock(b"mvhd", 1000, 90_000), trak(b"soun", 1000, 90_000, presented=90_000))
        content = box(b"ftyp", b"isom", bytes(4)) + box(b"free", bytes(3 * BLOCK_BYTES)) + movie
        host.files["/clip.m4a"] = MediaFile(content, size_bytes=64 << 20, knows_ranges=False)

        assert probe(host, "/clip.m4a", "m4a") == Stated(Clip(Fraction(90)), "m4a")

    def test_a_body_that_is_cut_is_not_asked_for_again(self, host: MediaHost) -> None:
        def respond(exchange: Exchange) -> None:
            host.write_head(exchange, 200, {"Content-Length": str(WAV.whole_bytes)})
            if exchange.request.method == "GET":
                host.send(exchange, WAV.cut(0, BLOCK_BYTES + 1))

        host.files["/clip.wav"] = respond

        assert probe(host, "/clip.wav", read=read_through) == Sized(WAV.whole_bytes, "wav")
        assert host.methods() == ["HEAD", "GET"]

    def test_the_tail_of_a_large_one_is_out_of_reach(self, host: MediaHost) -> None:
        content = box(b"ftyp", b"isom", bytes(4)) + struct.pack(">I4sQ", 1, b"mdat", 40 << 20)
        host.files["/clip.mp4"] = MediaFile(content, size_bytes=64 << 20, knows_ranges=False)

        assert probe(host, "/clip.mp4", "mp4") == Sized(64 << 20, "mp4")
        assert host.sent_bytes < PATIENT.bytes_each + SOCKETS_MAX_BYTES
        assert host.methods() == ["HEAD", "GET"]

    @pytest.mark.parametrize(("named", "found"), [("wav", STATED_WAV), ("mp3", Unknown())])
    def test_a_body_without_an_end_is_left(self, named: MediaFormat, found: Probed, host: MediaHost) -> None:
        content = WAV.content if named == "wav" else b"\xff\xfb\x90\x00"

        def respond(exchange: Exchange) -> None:
            host.write_head(exchange, 200, {"Transfer-Encoding": "chunked"})
            if exchange.request.method == "GET":
                host.send(exchange, content, chunked=True)
                while True:
                    host.send(exchange, bytes(BLOCK_BYTES), chunked=True)

        host.files["/clip"] = respond

        assert probe(host, "/clip", named) == found
        assert host.sent_bytes < PATIENT.bytes_each + SOCKETS_MAX_BYTES

    def test_a_range_without_an_end_is_left(self, host: MediaHost) -> None:
        def respond(exchange: Exchange) -> None:
            if exchange.request.method == "HEAD":
                exchange.respond(405)
                return
            headers = {"Transfer-Encoding": "chunked", "Content-Range": f"bytes 0-{1 << 40}/{1 << 41}"}
            host.write_head(exchange, PART, headers)
            host.send(exchange, WAV.content, chunked=True)
            while True:
                host.send(exchange, bytes(BLOCK_BYTES), chunked=True)

        host.files["/clip"] = respond

        assert probe(host, "/clip") == STATED_WAV
        assert host.sent_bytes < BLOCK_BYTES + SOCKETS_MAX_BYTES


class TestFilesThatChange:
    """Between the first range and the next."""

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (replace(WAV, headers={"ETag": '"1"'}), replace(WAV, headers={"ETag": '"2"'})),
            (replace(WAV, headers={"ETag": '"1"'}), WAV),
            (replace(WAV, headers={"Last-Modified": "Mon"}), replace(WAV, headers={"Last-Modified": "Tue"})),
            (WAV, make_wav(SECONDS + 1)),
            (WAV, make_wav(1)),
            (WAV, replace(make_wav(SECONDS + 1), knows_ranges=False)),
        ],
        ids=["etag", "etag-gone", "time", "grown", "shrunk", "whole"],
    )
    def test_what_was_read_is_nothing(self, before: MediaFile, after: MediaFile, host: MediaHost) -> None:
        def respond(exchange: Exchange) -> None:
            is_first = exchange.request.headers.get("range", "bytes=0-").startswith("bytes=0-")
            host.serve(exchange, before if is_first else after)

        host.files["/clip"] = respond

        assert probe(host, "/clip", read=read_through) == Unknown()
        assert len(host.ranges()) == 2

    def test_a_file_that_stays_is_read(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, headers={"ETag": 'W/"1"', "Last-Modified": "Mon"})

        assert probe(host, "/clip.wav", read=read_through) == Sized(WAV.whole_bytes, "wav")
        assert len(host.ranges()) == 3

    def test_a_file_of_unknown_size_ends_where_it_ends(self, host: MediaHost) -> None:
        def read_past(_: MediaFormat, source: ByteSource) -> Clip | None:
            assert source.read(4 * BLOCK_BYTES, 10) == b""
            return STATED_WAV.clip

        host.files["/clip.wav"] = replace(WAV, tells_size=False, headers={"ETag": '"1"'})

        assert probe(host, "/clip.wav", read=read_past) == STATED_WAV

    def test_a_mirror_that_answers_head_may_be_another(self, host: MediaHost) -> None:
        def respond(exchange: Exchange) -> None:
            is_head = exchange.request.method == "HEAD"
            host.serve(exchange, replace(make_wav(1), headers={"ETag": '"1"'}) if is_head else WAV)

        host.files["/clip"] = respond

        assert probe(host, "/clip") == STATED_WAV


class TestBounds:
    def test_of_bytes(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, size_bytes=100 << 30)
        limits = ProbeLimits(seconds_each=WAIT_SECONDS, bytes_each=3 * BLOCK_BYTES + 1)

        assert probe(host, "/clip.wav", limits=limits, read=read_through) == Sized(100 << 30, "wav")
        assert host.sent_bytes == limits.bytes_each

    def test_of_requests(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = replace(WAV, size_bytes=100 << 30)

        assert probe(host, "/clip.wav", read=read_through) == Sized(100 << 30, "wav")
        assert host.methods() == ["HEAD"] + ["GET"] * PATIENT.requests_each
        assert host.sent_bytes <= PATIENT.bytes_each

    def test_small_reads_ask_for_nothing_twice(self, host: MediaHost) -> None:
        def read_small(_: MediaFormat, source: ByteSource) -> Clip | None:
            places = [0, 100, 70_000, 65_530, 70_000, 3, 131_000]
            assert all(len(source.read(place, 100)) == 100 for place in places)
            assert source.read(source.size_bytes - 7, 100) == bytes(7)
            assert source.read(source.size_bytes, 1) == source.read(-1, 1) == b""
            return None

        host.files["/clip.wav"] = WAV

        assert probe(host, "/clip.wav", read=read_small) == Sized(WAV.whole_bytes, "wav")
        assert host.ranges() == [
            (0, BLOCK_BYTES - 1),
            (BLOCK_BYTES, 2 * BLOCK_BYTES - 1),
            (2 * BLOCK_BYTES, WAV.whole_bytes - 1),
        ]

    def test_of_time_for_a_host_that_is_silent(self, host: MediaHost) -> None:
        stopped = threading.Event()

        def respond(exchange: Exchange) -> None:
            exchange.stay_silent()
            stopped.set()

        host.files["/clip.wav"] = respond

        assert probe(host, "/clip.wav", limits=ProbeLimits(seconds_each=SHORT_SECONDS)) == Unknown()
        assert not stopped.is_set()

    def test_of_time_for_a_host_that_drips(self, host: MediaHost) -> None:
        """With more time its answer would be a good one."""
        heads = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nX-Long: " + b"x" * 500 + b"\r\n\r\n"
        host.files["/clip.wav"] = lambda exchange: exchange.drip(heads)

        assert probe(host, "/clip.wav", limits=ProbeLimits(seconds_each=SHORT_SECONDS)) == Unknown()

    def test_of_time_for_a_host_that_falls_silent(self, host: MediaHost) -> None:
        stopped = threading.Event()

        def respond(exchange: Exchange) -> None:
            if exchange.request.method == "HEAD":
                host.serve(exchange, WAV)
                return
            exchange.stay_silent()
            stopped.set()

        host.files["/clip.wav"] = respond
        limits = ProbeLimits(seconds_each=HANDSHAKE_SECONDS)

        assert probe(host, "/clip.wav", limits=limits) == Sized(WAV.whole_bytes, "wav")
        assert not stopped.is_set()

    def test_of_time_that_is_over(self, host: MediaHost) -> None:
        host.files["/clip.wav"] = WAV

        assert probe(host, "/clip.wav", limits=ProbeLimits(seconds_each=0)) == Unknown()
        assert host.methods() == []

    def test_of_time_for_all_together(self) -> None:
        assert ProbeLimits().seconds_all == 5 * ProbeLimits().seconds_each
