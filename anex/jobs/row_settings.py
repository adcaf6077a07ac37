"""What a job's own columns say about each of its rows."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from anex.media.tokens import to_fraction
from anex.rows.inputs import InputTerms
from anex.rows.media import MediaTerms
from anex.rows.media_items import Length
from anex.rows.settings import RowSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.jobs.model import Job
    from anex.services import Services


def row_settings_of(job: Job) -> RowSettings:
    """Return the job-level settings that rows are checked, counted, sampled and run with."""
    return RowSettings(
        reasoning=job.reasoning,
        reasoning_budget=job.asked_budget,
        reasoning_effort=job.reasoning_effort,
        response_format=job.response_format,
    )


def input_terms_of(services: Services, job: Job) -> InputTerms:
    """Return what the inputs of the job's rows are counted by."""
    spec = services.catalog.get(job.model)
    return InputTerms(row_settings_of(job), media_terms_of(services, job), services.counters.for_model(spec))


def media_terms_of(services: Services, job: Job) -> MediaTerms:
    """Return what decides about the media of the job's rows."""
    lengths = {address: _read_length(stored) for address, stored in (job.clip_lengths or {}).items()}
    return MediaTerms(services.catalog.get(job.model), video_fps_of(job), lengths, services.clips)


def video_fps_of(job: Job) -> Fraction | None:
    """Return the sampling rate that the job asks for, as it was written."""
    return None if job.video_fps is None else to_fraction(job.video_fps)


def store_lengths(lengths: Mapping[str, Length]) -> dict[str, Any]:
    """Return what is known of hosted clips as JSON; ``input_terms_of`` reads it."""
    return {
        address: [str(length.seconds), length.known, _write_rate(length.frames_per_second)]
        for address, length in lengths.items()
    }


def _read_length(stored: list[Any]) -> Length:
    seconds, known, rate = stored
    return Length(Fraction(seconds), known, None if rate is None else Fraction(rate))


def _write_rate(rate: Fraction | None) -> str | None:
    return None if rate is None else str(rate)
