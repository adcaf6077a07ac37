"""What the first bytes of an item say it is.

Families are told, not formats: MP4, MOV and M4A are one, WebM and Matroska, Ogg and Opus. Whatever clearly is of another
family contradicts a format. Bytes that nobody knows contradict it too, unless it may begin with anything: MP3 and
raw AAC have no head of their own, are cut anywhere, and decoders look for their first frame.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.catalog import Modality
    from anex.media.model import MediaFormat

HEAD_BYTES = 4096
"""Of an item's beginning: all that is looked at here."""

_FAMILY_OF: Mapping[str, str] = {
    "mp4": "isobmff",
    "mov": "isobmff",
    "m4a": "isobmff",
    "webm": "matroska",
    "mkv": "matroska",
    "opus": "ogg",
}
"""Where it isn't called like the format."""

_TAGGED = {"mp3", "aac", "flac"}
"""What may follow an ID3 tag."""
_HEADLESS = {"mp3", "aac"}

_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "isobmff": "an MP4 or QuickTime file",
        "matroska": "a Matroska or WebM file",
        "wav": "a WAV file",
        "avi": "an AVI file",
        "webp": "a WebP image",
        "aiff": "an AIFF file",
        "flac": "a FLAC file",
        "ogg": "an Ogg file",
        "mp3": "an MP3 file",
        "aac": "an AAC file",
        "id3": "an ID3 tag, as MP3 files have it",
        "png": "a PNG image",
        "jpeg": "a JPEG image",
        "gif": "a GIF image",
        "bmp": "a BMP image",
        "tiff": "a TIFF image",
        "heif": "a HEIF image",
        "avif": "an AVIF image",
        "raw": "a camera's raw image",
        "jp2": "a JPEG 2000 image",
        "jxl": "a JPEG XL image",
        "ico": "an icon",
        "psd": "a Photoshop document",
        "svg": "an SVG image",
        "asf": "a WMA, WMV or ASF file",
        "flv": "a Flash video",
        "mpegts": "an MPEG transport stream",
        "mpegps": "an MPEG program stream",
        "caf": "a CAF file",
        "amr": "an AMR file",
        "au": "an AU file",
        "midi": "a MIDI file",
        "wavpack": "a WavPack file",
        "ape": "a Monkey's Audio file",
        "hls": "an HLS playlist",
        "html": "a web page",
        "xml": "an XML document",
        "json": "a JSON document",
        "pdf": "a PDF document",
        "zip": "a ZIP archive",
        "gzip": "a gzip archive",
        "bzip2": "a bzip2 archive",
        "xz": "an xz archive",
        "zstd": "a Zstandard archive",
        "7z": "a 7z archive",
        "rar": "a RAR archive",
        "text": "plain text",
    }
)

_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II\x2a\0", "tiff"),
    (b"MM\0\x2a", "tiff"),
    (b"II\x2b\0", "tiff"),
    (b"MM\0\x2b", "tiff"),
    (b"fLaC", "flac"),
    (b"OggS", "ogg"),
    (b"\x1a\x45\xdf\xa3", "matroska"),
    (b"ADIF", "aac"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
    (b"\0\0\x01\0", "ico"),
    (b"8BPS", "psd"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),
    (b"FLV\x01", "flv"),
    (b"\0\0\x01\xba", "mpegps"),
    (b"\0\0\x01\xb3", "mpegps"),
    (b"caff\0\x01", "caf"),
    (b"#!AMR", "amr"),
    (b".snd", "au"),
    (b"MThd", "midi"),
    (b"wvpk", "wavpack"),
    (b"MAC \x96\x0f", "ape"),
    (b"%PDF-", "pdf"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "rar"),
)

_CHUNKED: Mapping[tuple[bytes, bytes], str] = {
    (b"RIFF", b"WAVE"): "wav",
    (b"RF64", b"WAVE"): "wav",
    (b"BW64", b"WAVE"): "wav",
    (b"RIFF", b"AVI "): "avi",
    (b"RIFF", b"WEBP"): "webp",
    (b"FORM", b"AIFF"): "aiff",
    (b"FORM", b"AIFC"): "aiff",
}

_FIRST_BOXES = {b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot", b"uuid", b"styp", b"moof"}
"""What QuickTime files of old, and fragments, begin with in place of ``ftyp``."""
_STILL_BRANDS: Mapping[bytes, str] = {
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "heif"),
    **dict.fromkeys((b"avif", b"avis"), "avif"),
    b"crx ": "raw",
}
_QUICKTIME = b"qt  "

_BMP_HEADERS = {12, 16, 40, 52, 56, 64, 108, 124}
"""How long the part after the file header may be, by its version."""
_BMP_HEADER_AT = 14

_TS_PACKETS = ((0, 188), (4, 192))
"""Where the first packet's sync byte stands in a transport stream, and how far it is to the next one's."""
_TS_SYNCS = b"\x47" * 3

_TEXTS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"#EXTM3U"), "hls"),
    (re.compile(rb"<!doctype html|<html|<head|<body", re.IGNORECASE), "html"),
    (re.compile(rb"(?:<\?xml[^>]{0,200}>\s{0,200})?(?:<!--[^>]{0,200}-->\s{0,200})?<svg[\s>]"), "svg"),
    (re.compile(rb"<\?xml|<MPD\s"), "xml"),
    (re.compile(rb'\{\s{0,200}"|\[\s{0,200}[\[{"]'), "json"),
)
_PLAIN = re.compile(rb"[\t\n\r\x20-\x7e]{16,}")
"""Bytes in base64 twice, an address in place of what it leads to, a pointer of Git LFS."""

_FORMAT_OF: Mapping[Modality, Mapping[str, MediaFormat]] = {
    "image": {"png": "png", "jpeg": "jpeg", "webp": "webp", "gif": "gif", "bmp": "bmp", "tiff": "tiff"},
    "audio": {
        "wav": "wav",
        "mp3": "mp3",
        "id3": "mp3",
        "isobmff": "m4a",
        "aac": "aac",
        "ogg": "ogg",
        "flac": "flac",
        "aiff": "aiff",
    },
    "video": {"avi": "avi"},
}
"""Where the family is all that tells."""

_ID3_HEAD_BYTES = 10
_ID3_FOOTER = 0x10
_SYNC = 0xFF
_SYNC_BITS = 0xE0
_FRAME_HEAD_BYTES = 4
_AAC_VERSIONS = {2, 3}
_AAC_RATES = 13
_LAYERS_2_AND_3 = {1, 2}
"""Layer 1 is as good as extinct, and a byte order mark of UTF-16 looks like it."""
_VERSION_RESERVED = 1
_BIT_RATE_RESERVED = 15
_RATE_RESERVED = 3
_OPUS_HEAD_AT = 28
_WEBM = re.compile(rb"\x42\x82.{1,8}webm", re.DOTALL)
"""The kind of a Matroska file: a number, a length of one to eight bytes, and the name."""


def identify(head: bytes) -> str | None:
    """Return the family of an item's first bytes, None for one that isn't known."""
    head = head[:HEAD_BYTES]
    return (
        _identify_boxes(head)  # before the magics: a first box's size may look like one
        or _CHUNKED.get((head[:4], head[8:12]))
        or next((family for magic, family in _MAGICS if head.startswith(magic)), None)
        or _identify_bmp(head)
        or _identify_tagged(head)
        or _identify_transport(head)
        or _identify_text(head)
        or _identify_frame(head.lstrip(b"\0"))
    )


def find_contradiction(format: MediaFormat, head: bytes) -> str | None:  # noqa: A002
    """Return how an item's first bytes contradict its format, None where they don't. The words follow "…, but"."""
    if not head:
        return "it holds no bytes"
    family = identify(head)
    if family == _FAMILY_OF.get(format, format) or (family == "id3" and format in _TAGGED):
        return None
    if family is not None:
        return f"its first bytes are those of {_DESCRIPTIONS[family]}"
    if format in _HEADLESS:
        return None
    return f"its first bytes are not those of {_DESCRIPTIONS[_FAMILY_OF.get(format, format)]}"


def sniff_format(modality: Modality, head: bytes) -> MediaFormat | None:
    """Return the format that an item's first bytes alone tell, None where they tell none of its modality."""
    family = identify(head)
    if family == "ogg" and modality == "audio" and head.startswith(b"OpusHead", _OPUS_HEAD_AT):
        return "opus"
    if family == "isobmff" and modality == "video":
        return "mov" if head[4:8] != b"ftyp" or head[8:12] == _QUICKTIME else "mp4"
    if family == "matroska" and modality == "video":
        return "webm" if _WEBM.search(head) else "mkv"
    return None if family is None else _FORMAT_OF[modality].get(family)


def _identify_boxes(head: bytes) -> str | None:
    kind = head[4:8]
    if kind == b"ftyp":
        return _STILL_BRANDS.get(head[8:12], "isobmff")
    return "isobmff" if kind in _FIRST_BOXES else None


def _identify_bmp(head: bytes) -> str | None:
    size = int.from_bytes(head[_BMP_HEADER_AT : _BMP_HEADER_AT + 4], "little")
    return "bmp" if head[:2] == b"BM" and size in _BMP_HEADERS else None


def _identify_tagged(head: bytes) -> str | None:
    """Return what follows an ID3 tag; ``id3`` where that lies further behind, or isn't known."""
    if head[:3] != b"ID3":
        return None
    fields = head[:_ID3_HEAD_BYTES].ljust(_ID3_HEAD_BYTES, b"\0")
    size = (fields[6] & 0x7F) << 21 | (fields[7] & 0x7F) << 14 | (fields[8] & 0x7F) << 7 | fields[9] & 0x7F
    size += _ID3_HEAD_BYTES * (2 if fields[5] & _ID3_FOOTER else 1)
    rest = head[size:]
    if rest[:3] == b"ID3":
        return "id3"
    return (identify(rest) if rest else None) or "id3"


def _identify_transport(head: bytes) -> str | None:
    for start, step in _TS_PACKETS:
        syncs = head[start : start + 2 * step + 1 : step]
        if syncs == _TS_SYNCS:
            return "mpegts"
    return None


def _identify_text(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, family in _TEXTS:
        if pattern.match(text):
            return family
    return "text" if _PLAIN.fullmatch(head) else None


def _identify_frame(head: bytes) -> str | None:
    """Return whether a frame of MPEG audio begins here; padding of zeros before it has been left out."""
    if len(head) < _FRAME_HEAD_BYTES or head[0] != _SYNC or head[1] & _SYNC_BITS != _SYNC_BITS:
        return None
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    if layer == 0:
        return "aac" if version in _AAC_VERSIONS and head[2] >> 2 & 15 < _AAC_RATES else None
    bit_rate, rate = head[2] >> 4, head[2] >> 2 & 3
    reserved = version == _VERSION_RESERVED or bit_rate == _BIT_RATE_RESERVED or rate == _RATE_RESERVED
    return "mp3" if layer in _LAYERS_2_AND_3 and not reserved else None
