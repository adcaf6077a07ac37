"""The media formats that are taken, and the names that people, files and hosts have for each of them."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args
from urllib.parse import unquote, urlsplit

from anex.media.model import AudioFormat, ImageFormat, VideoFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.catalog import Modality
    from anex.media.model import MediaFormat

FORMATS: Mapping[Modality, tuple[MediaFormat, ...]] = MappingProxyType(
    {"audio": get_args(AudioFormat), "video": get_args(VideoFormat), "image": get_args(ImageFormat)}
)
"""By modality, in the order of the documents."""

BIT_RATES_KBITS: Mapping[str, int] = MappingProxyType(
    {
        "wav": 256,
        "aiff": 256,
        "flac": 500,
        "mp3": 64,
        "m4a": 48,
        "aac": 48,
        "ogg": 48,
        "opus": 24,
        "avi": 1000,
    }
)
"""Conservative rates, in thousands of bits a second: a clip of unknown length is taken for longer than most are."""

_OTHER_NAMES: Mapping[Modality, Mapping[str, MediaFormat]] = {
    "audio": {
        "wave": "wav",
        "mpeg": "mp3",
        "mpga": "mp3",
        "m4b": "m4a",
        "adts": "aac",
        "oga": "ogg",
        "aif": "aiff",
        "aifc": "aiff",
        "aiffc": "aiff",
    },
    "video": {"m4v": "mp4", "qt": "mov", "quicktime": "mov", "matroska": "mkv"},
    "image": {
        "apng": "png",
        "jpg": "jpeg",
        "jpe": "jpeg",
        "jfif": "jpeg",
        "pjpeg": "jpeg",
        "dib": "bmp",
        "tif": "tiff",
    },
}
"""Names and extensions beside the formats' own."""

_OTHER_SUBTYPES: Mapping[Modality, Mapping[str, MediaFormat]] = {
    "audio": {
        "mp4": "m4a",
        "mp4a-latm": "m4a",
        "vnd.wave": "wav",
        "pn-wav": "wav",
        "mpeg3": "mp3",
        "mpeg-3": "mp3",
        "aacp": "aac",
        "hx-aac-adts": "aac",
        "vnd.dlna.adts": "aac",
        "vorbis": "ogg",
    },
    "video": {"msvideo": "avi", "vnd.avi": "avi"},
    "image": {"ms-bmp": "bmp", "windows-bmp": "bmp"},
}
"""What media types call the formats, where no name above does; without the old ``x-``."""

_APPLICATION_SUBTYPES: Mapping[Modality, Mapping[str, MediaFormat]] = {
    "audio": {"ogg": "ogg", "mp4": "m4a"},
    "video": {"mp4": "mp4", "matroska": "mkv"},
    "image": {},
}
"""Of ``application/…``, which names a container and not what is in it."""


def find_by_name(modality: Modality, name: str) -> MediaFormat | None:
    """Return the format that a ``format`` field or an extension names, None where it is none of the modality's."""
    name = name.strip().lower()
    for each in FORMATS[modality]:
        if each == name:
            return each
    return _OTHER_NAMES[modality].get(name)


def find_by_mime(modality: Modality, mime: str) -> MediaFormat | None:
    """Return the format that a media type names, None where it is none of the modality's.

    Of its parameters one counts: ``audio/ogg; codecs=opus`` is Opus, whose bit rate is another than Vorbis'.
    """
    essence, _, parameters = mime.partition(";")
    kind, _, subtype = essence.strip().lower().partition("/")
    subtype = subtype.removeprefix("x-")
    if kind == "application":
        found = _APPLICATION_SUBTYPES[modality].get(subtype)
    elif kind == modality:
        found = _OTHER_SUBTYPES[modality].get(subtype) or find_by_name(modality, subtype)
    else:
        return None
    return "opus" if found == "ogg" and _names_opus(parameters) else found


def _names_opus(parameters: str) -> bool:
    """Tell whether a media type's parameters name Opus as the one codec."""
    fields = (field.strip().lower().replace('"', "") for field in parameters.split(";"))
    return "codecs=opus" in fields


def find_by_extension(url: str) -> str | None:
    """Return the extension of a URL's path, in lower case; None where it has none. The query is not looked at."""
    try:
        path = unquote(urlsplit(url).path)
    except ValueError:
        return None
    name = path.rpartition("/")[2].partition(";")[0]
    _, dot, extension = name.rpartition(".")
    return extension.lower() if dot and extension.isascii() and extension.isalnum() else None


def estimate_seconds(format: str, size_bytes: int) -> Fraction | None:  # noqa: A002
    """Return how long a clip of that size lasts at its format's rate, None for a format that has none."""
    rate_kbits = BIT_RATES_KBITS.get(format)
    return None if rate_kbits is None else Fraction(size_bytes * 8, rate_kbits * 1000)
