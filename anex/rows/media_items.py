"""One media part of a row: where its bytes are, which format they have, and how long a clip lasts.

The format is what the part says of itself, in the contract's order: the ``format`` field, the media type of a ``data:`` URI, the
extension of an address, the first bytes of what is inline. A length is the declared one, else what the container states, else what
its bytes make at a conservative bit rate; a hosted clip's is what a probe found, if one did.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from anex.media.formats import FORMATS, estimate_seconds, find_by_extension, find_by_mime, find_by_name
from anex.media.inline import Base64Source, find_base64_fault, parse_data_uri
from anex.media.model import MediaUnreadable
from anex.media.sniff import HEAD_BYTES, find_contradiction, sniff_format
from anex.media.tokens import to_fraction
from anex.rows.faults import RowRefused, quote
from anex.rows.long_lines import LongText
from anex.rows.parts import ImagePart, InputAudioPart, modality_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from anex.catalog import Modality
    from anex.media.clips import ClipFacts, ClipReader
    from anex.media.model import MediaFormat
    from anex.rows.parts import MediaPart, Payload

ADDRESS_MAX_CHARACTERS = 8192

OTHER_EXTENSIONS = frozenset(
    (
        *(
            "3g2",
            "3gp",
            "ac3",
            "amr",
            "ape",
            "asf",
            "avif",
            "caf",
            "dts",
            "eps",
            "f4v",
            "flv",
            "heic",
            "heif",
            "ico",
            "jp2",
        ),
        *(
            "jxl",
            "m2ts",
            "m3u8",
            "mid",
            "midi",
            "mpd",
            "mpeg",
            "mpg",
            "mts",
            "ogv",
            "pdf",
            "psd",
            "rm",
            "rmvb",
            "svg",
            "ts",
        ),
        *("vob", "wma", "wmv", "wv"),
    )
)
"""Extensions of media that are not served. Any other (``.php``) says nothing about what an address gives."""

_NO_FORMAT_MIMES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
"""Media types that name no format: the bytes are asked instead."""

Known = Literal["declared", "stated", "estimated", "probed"]


@dataclass(frozen=True, slots=True)
class Length:
    """How long a clip is taken to be, and how that is known."""

    seconds: Fraction
    known: Known
    frames_per_second: Fraction | None = None
    frames: int | None = None


Lengths = dict[str, Length]
"""What was found out about hosted clips, by ``digest_address``."""


@dataclass(frozen=True, slots=True)
class Inline:
    """Media within the line."""

    modality: Modality
    format: MediaFormat | None
    """What the part says it is; None where it doesn't."""
    base64: str | memoryview
    source: Base64Source


@dataclass(frozen=True, slots=True)
class Hosted:
    """Media by address."""

    modality: Modality
    format: MediaFormat | None
    """By the address' extension."""
    address: str


def digest_address(address: str) -> str:
    """Return what an address is kept as: it may hold secrets and is a customer's, so the address itself is not."""
    return blake2b(address.encode(), digest_size=16).hexdigest()


def open_part(part: MediaPart) -> Inline | Hosted:
    """Return where a part's media are. Raises ``RowRefused`` where it names no place or no format that is served."""
    modality = modality_of(part)
    payload = part.payload
    if isinstance(part, InputAudioPart):
        named = find_by_name(modality, part.input_audio.format)
        if named is None:
            raise _unsupported(modality, part.input_audio.format)
        return _open_base64(modality, named, payload.data if isinstance(payload, LongText) else payload)
    scheme = _read_head(payload).partition(":")[0].lower()
    if scheme == "data":
        return _open_data_uri(modality, payload)
    if scheme == "http":
        raise RowRefused(f"{_name_field(part)} is an http:// address; use https://")
    if scheme != "https":
        raise RowRefused(f"{_name_field(part)} must be an https:// address or a data: URI")
    return _open_address(modality, payload, _name_field(part))


def settle_format(inline: Inline) -> MediaFormat:
    """Return the format of inline media, its bytes looked at. Raises ``RowRefused``."""
    fault = find_base64_fault(inline.base64)
    if fault is not None:
        raise RowRefused(f"an embedded {name_file(inline.modality)} is not valid base64: {fault}")
    head = inline.source.read(0, HEAD_BYTES)
    named = inline.format or sniff_format(inline.modality, head)
    if named is None:
        raise RowRefused(
            f"the format of an embedded {name_file(inline.modality)} can't be told; name it in the data: URI."
            f" {_list_formats(inline.modality)}"
        )
    contradiction = find_contradiction(named, head)
    if contradiction is not None:
        raise RowRefused(
            f"an embedded {name_file(inline.modality)} is declared as {named}, but {contradiction}"
        )
    return named


def read_length(
    part: MediaPart, place: Inline | Hosted, lengths: Mapping[str, Length], clips: ClipReader
) -> Length | None:
    """Return a clip's length; None where nobody can tell yet. Raises ``RowRefused`` for a clip that can't be read."""
    declared = None if part.declared_seconds is None else to_fraction(part.declared_seconds)
    if isinstance(place, Hosted):
        if declared is not None:
            return Length(declared, "declared")
        return lengths.get(digest_address(place.address))
    named = place.format or sniff_format(place.modality, place.source.read(0, HEAD_BYTES))
    if named is None:
        return None if declared is None else Length(declared, "declared")
    facts = _read_clip(named, place, clips)
    found: tuple[Fraction | None, Known] = (
        (declared, "declared")
        if declared is not None
        else (facts.seconds, "stated")
        if facts.seconds is not None
        else (estimate_seconds(named, place.source.size_bytes), "estimated")
    )
    seconds, known = found
    return None if seconds is None else Length(seconds, known, facts.frames_per_second, facts.frames)


def _read_clip(named: MediaFormat, place: Inline, clips: ClipReader) -> ClipFacts:
    try:
        return clips.read(named, place.source)
    except MediaUnreadable as unreadable:
        raise RowRefused(
            f"an embedded {name_file(place.modality)} can't be read: {unreadable.message}"
        ) from None


def name_file(modality: Modality) -> str:
    """Return what the contract calls an inline item."""
    return "image" if modality == "image" else f"{modality} file"


def _open_data_uri(modality: Modality, payload: Payload) -> Inline:
    text = payload.data if isinstance(payload, LongText) else payload
    try:
        uri = parse_data_uri(text)
    except MediaUnreadable as unreadable:
        raise RowRefused(unreadable.message) from None
    named = find_by_mime(modality, uri.mime)
    if named is None and uri.mime.lower() not in _NO_FORMAT_MIMES:
        raise _unsupported(modality, uri.mime)
    return _open_base64(modality, named, text[uri.begin :])


def _open_base64(modality: Modality, named: MediaFormat | None, text: str | memoryview) -> Inline:
    return Inline(modality, named, text, Base64Source(text))


def _open_address(modality: Modality, payload: Payload, field: str) -> Hosted:
    if isinstance(payload, LongText) or len(payload) > ADDRESS_MAX_CHARACTERS:
        raise RowRefused(f"{field} is an address of over {ADDRESS_MAX_CHARACTERS:,} characters")
    try:
        host = urlsplit(payload).hostname
    except ValueError:
        host = None
    if not host:
        raise RowRefused(f"{field} is not a valid https:// address")
    extension = find_by_extension(payload)
    named = None if extension is None else find_by_name(modality, extension)
    if extension is not None and named is None and _names_other_media(modality, extension):
        raise _unsupported(modality, extension)
    return Hosted(modality, named, payload)


def _names_other_media(modality: Modality, extension: str) -> bool:
    """Whether an extension is of media that this kind of part doesn't take."""
    return extension in OTHER_EXTENSIONS or any(
        find_by_name(other, extension) for other in FORMATS if other != modality
    )


def _unsupported(modality: Modality, named: str) -> RowRefused:
    return RowRefused(f"unsupported {modality} format {quote(named)}: {_list_formats(modality)}")


def _list_formats(modality: Modality) -> str:
    return f"supported {modality} formats are {', '.join(FORMATS[modality])}"


def _name_field(part: MediaPart) -> str:
    return f"{'image_url' if isinstance(part, ImagePart) else modality_of(part) + '_url'}.url"


def _read_head(payload: Payload) -> str:
    return str(payload.data[:16], "utf-8", "replace") if isinstance(payload, LongText) else payload[:16]
