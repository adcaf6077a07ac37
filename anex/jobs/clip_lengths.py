"""Ask hosts how long a job's clips are, as far as their owners didn't say; nobody waits for a host that doesn't answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anex.media.durations import HOSTED_READS_MAX, read_clip
from anex.media.formats import FORMATS, estimate_seconds
from anex.media.hosted import HostedClip as Asked
from anex.media.hosted import ProbeLimits, Sized, Stated, TypeRefused, probe_clips
from anex.rows.faults import RowRefused, describe_row, quote
from anex.rows.media import check_length
from anex.rows.media_items import Length, digest_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.media.hosted import Probed
    from anex.outbound import Outbound
    from anex.rows.check import HostedClip
    from anex.rows.faults import FaultList
    from anex.rows.media import MediaTerms


def ask_hosts(
    outbound: Outbound, terms: MediaTerms, hosted: Sequence[HostedClip], faults: FaultList
) -> dict[str, Length]:
    """Return the lengths that could be found out, by ``digest_address``; what fails the job is added to ``faults``."""
    asked = [Asked(each.clip.address, each.clip.modality, each.clip.format) for each in hosted]
    answers = probe_clips(outbound, asked, ProbeLimits(), partial(read_clip, reads_max=HOSTED_READS_MAX))
    lengths: dict[str, Length] = {}
    for each in hosted:
        try:
            length = _judge(terms, each, answers.get(each.clip.address))
        except RowRefused as refusal:
            faults.add(refusal.message)
            continue
        if length is not None:
            lengths[digest_address(each.clip.address)] = length
    return lengths


def _judge(terms: MediaTerms, hosted: HostedClip, answer: Probed | None) -> Length | None:
    """Return what an answer says of a clip's length. Raises ``RowRefused`` where it fails the job."""
    modality = hosted.clip.modality
    if isinstance(answer, TypeRefused):
        message = (
            f"the host of {'an audio file' if modality == 'audio' else 'a video'} serves it as {quote(answer.content_type)},"
            f" which is none of {', '.join(FORMATS[modality])}. Put a file extension on the URL, serve it with its real"
            " content type, or send the bytes inline."
        )
        raise RowRefused(describe_row(hosted.custom_id, message), names_row=True)
    if isinstance(answer, Stated):
        clip = answer.clip
        length = Length(clip.seconds, "probed", clip.frames_per_second, clip.frames)
        check_length(terms, hosted.custom_id, modality, length)
        return length
    if isinstance(answer, Sized):
        seconds = estimate_seconds(answer.format, answer.size_bytes)
        return None if not seconds else Length(seconds, "estimated")
    return None
