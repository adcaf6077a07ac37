"""Containers made by hand, piece by piece: what no encoder writes, and bytes in memory whose reads are counted."""

from __future__ import annotations

import struct

from anex.media.window import READ_MAX_BYTES


class MemorySource:
    """Bytes in memory; refuses reads that are larger than promised, or of places that don't exist."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.reads = 0

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    def read(self, offset: int, count: int) -> bytes:
        assert 0 <= offset < len(self._content)
        assert 0 < count <= READ_MAX_BYTES
        self.reads += 1
        return self._content[offset : offset + count]


class LargeSource(MemorySource):
    """Bytes, and after them so many zeros that nobody has the memory for them."""

    def __init__(self, content: bytes, size_bytes: int) -> None:
        super().__init__(content)
        self._size_bytes = size_bytes

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def read(self, offset: int, count: int) -> bytes:
        assert 0 < count <= READ_MAX_BYTES
        self.reads += 1
        return self._content[offset : offset + count].ljust(min(count, self._size_bytes - offset), b"\0")


def chunk(kind: bytes, body: bytes, size_bytes: int | None = None) -> bytes:
    """Return a chunk of RIFF."""
    stated = len(body) if size_bytes is None else size_bytes
    return kind + struct.pack("<I", stated) + body + b"\0" * (len(body) % 2)


def riff(kind: bytes, *chunks: bytes, mark: bytes = b"RIFF") -> bytes:
    """Return a file of chunks."""
    return chunk(mark, kind + b"".join(chunks))


def wav_format(tag: int = 1, rate: int = 8000, block_bytes: int = 2, rest: bytes = b"") -> bytes:
    """Return the chunk that describes the samples of a WAV file."""
    body = struct.pack("<HHIIHH", tag, 1, rate, rate * block_bytes, block_bytes, 8 * block_bytes)
    return chunk(b"fmt ", body + rest)


def box(kind: bytes, *parts: bytes, wide: bool = False, open_ended: bool = False) -> bytes:
    """Return a box of an MP4 file; one without an end has size 0."""
    body = b"".join(parts)
    if wide:
        return struct.pack(">I4sQ", 1, kind, len(body) + 16) + body
    return struct.pack(">I4s", 0 if open_ended else len(body) + 8, kind) + body


def clock(kind: bytes, scale: int, duration: int, *, version: int = 0) -> bytes:
    """Return ``mvhd`` or ``mdhd``."""
    layout = (">4x8xII", ">4x16xIQ")[version]
    body = bytearray(struct.pack(layout, scale, duration))
    body[0] = version
    return box(kind, bytes(body), bytes(80 if kind == b"mvhd" else 4))


def trak(
    kind: bytes = b"vide", scale: int = 1000, duration: int = 0, samples: int = 0, presented: int = 0
) -> bytes:
    """Return a track of number 1."""
    head = box(b"tkhd", struct.pack(">4x8xI4xI", 1, presented), bytes(60))
    table = box(b"stbl", box(b"stsz", struct.pack(">III", 0, 1, samples)))
    media = box(
        b"mdia", clock(b"mdhd", scale, duration), box(b"hdlr", bytes(8), kind, bytes(12)), box(b"minf", table)
    )
    return box(b"trak", head, media)


def element(kind: int, *parts: bytes, unknown: bool = False) -> bytes:
    """Return an element of a Matroska file."""
    body = b"".join(parts)
    size = b"\x01" + b"\xff" * 7 if unknown else (len(body) | 1 << 56).to_bytes(8, "big")
    return kind.to_bytes((kind.bit_length() + 7) // 8, "big") + size + body


def number(kind: int, value: int) -> bytes:
    """Return an element that holds a number."""
    return element(kind, value.to_bytes(8, "big"))


def page(
    serial: int, granule: int, packet: bytes = b"\0" * 20, *, first: bool = False, packets: int = 1
) -> bytes:
    """Return a page of an Ogg file: some packets of the same bytes, each shorter than 255."""
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, 2 if first else 0, granule, serial, 0, 0, packets)
    return head + bytes([len(packet)] * packets) + packet * packets


def opus_head(serial: int, skipped: int = 312) -> bytes:
    """Return the first page of an Opus stream."""
    return page(serial, 0, b"OpusHead" + struct.pack("<BBHIhB", 1, 1, skipped, 48_000, 0, 0), first=True)
