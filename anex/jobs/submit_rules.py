"""What a job may ask of its model: the rules of ``POST /jobs`` that need the catalog and nothing else.

Each refusal names its field. A chat model takes no embedding field, and the reverse; what a model lacks (reasoning, effort levels,
a sampling rate) can't be set on it, while switching it off is accepted everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anex.errors import RequestRefused, SettingInvalid
from anex.rows.response_format import find_format_fault

if TYPE_CHECKING:
    from anex.catalog import ModelSpec
    from anex.regions import Region

ANSWER_MIN_TOKENS = 64
"""What a thinking budget leaves of an explicit cap: the notice that ends thinking, at least."""

_GENERATION_FIELDS = (
    "max_output_tokens",
    "reasoning",
    "reasoning_budget",
    "reasoning_effort",
    "response_format",
    "video_fps",
)
_KIND_NAMES = {"chat": "a chat model", "embed": "an embedding model", "decide": "a decision model"}


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What ``POST /jobs`` asks for; None is "not set"."""

    model: str
    input_id: str | None = None
    input_s3_uri: str | None = None
    max_output_tokens: int | None = None
    reasoning: bool | None = None
    reasoning_budget: int | None = None
    reasoning_effort: str | None = None
    video_fps: float | None = None
    response_format: dict[str, Any] | None = None
    dimensions: int | None = None
    data_residency: Region | None = None


def check_settings(spec: ModelSpec, request: SubmitRequest) -> None:
    """Raise ``SettingInvalid`` for the first field that does not go with the model, ``RequestRefused`` for a malformed format."""
    if (request.input_id is None) == (request.input_s3_uri is None):
        raise SettingInvalid("input_id", "give exactly one of input_id and input_s3_uri")
    if spec.kind != "chat":
        _check_no_generation(spec, request)
        _check_dimensions(spec, request)
        return
    if request.dimensions is not None:
        raise SettingInvalid("dimensions", f"dimensions is for embedding models; '{spec.id}' is a chat model")
    _check_reasoning(spec, request)
    _check_effort(spec, request)
    _check_video_rate(spec, request)
    fault = request.response_format is not None and find_format_fault(request.response_format)
    if fault:
        raise RequestRefused(fault)


def takes_sample(spec: ModelSpec, request: SubmitRequest) -> bool:
    """Whether the price takes a sample: for the cap, or for the thinking budget under an explicit cap."""
    if spec.kind != "chat":
        return False
    if request.max_output_tokens is None:
        return True
    return spec.reasoning is not None and request.reasoning is not False and request.reasoning_budget is None


def _check_no_generation(spec: ModelSpec, request: SubmitRequest) -> None:
    for field in _GENERATION_FIELDS:
        if getattr(request, field) is not None:
            raise SettingInvalid(
                field, f"{field} does not apply to {_KIND_NAMES[spec.kind]} such as '{spec.id}'"
            )
    if spec.kind == "decide" and request.dimensions is not None:
        raise SettingInvalid(
            "dimensions", f"dimensions is for embedding models; '{spec.id}' is a decision model"
        )


def _check_dimensions(spec: ModelSpec, request: SubmitRequest) -> None:
    width = request.dimensions
    if width is None:
        return
    if spec.dimensions is None:
        raise SettingInvalid("dimensions", f"model '{spec.id}' has one width only; leave dimensions out")
    least, most = spec.dimensions.min_width, spec.dimensions.max_width
    if not least <= width <= most:
        raise SettingInvalid("dimensions", f"dimensions of '{spec.id}' must be from {least} to {most}")


def _check_reasoning(spec: ModelSpec, request: SubmitRequest) -> None:
    budget = request.reasoning_budget or 0
    if spec.reasoning is None:
        if request.reasoning:
            raise SettingInvalid(
                "reasoning", f"model '{spec.id}' produces no reasoning trace; leave reasoning out"
            )
        if budget >= 1:
            raise SettingInvalid(
                "reasoning_budget", f"model '{spec.id}' does not reason; leave reasoning_budget out or send 0"
            )
        return
    if budget >= 1 and request.reasoning is False:
        raise SettingInvalid(
            "reasoning_budget", "a reasoning_budget needs reasoning on; remove one of the two"
        )
    cap = request.max_output_tokens
    if budget >= 1 and cap is not None and budget > cap - ANSWER_MIN_TOKENS:
        raise SettingInvalid(
            "reasoning_budget",
            f"reasoning_budget must be at least {ANSWER_MIN_TOKENS} below max_output_tokens ({cap})",
        )


def _check_effort(spec: ModelSpec, request: SubmitRequest) -> None:
    effort = request.reasoning_effort
    if effort is None:
        return
    levels = spec.reasoning.efforts if spec.reasoning is not None else ()
    if not levels:
        raise SettingInvalid("reasoning_effort", f"model '{spec.id}' takes no reasoning_effort")
    if effort not in levels:
        raise SettingInvalid(
            "reasoning_effort", f"reasoning_effort of '{spec.id}' is one of {', '.join(levels)}"
        )
    if request.reasoning is False:
        raise SettingInvalid("reasoning_effort", "reasoning_effort needs reasoning on; remove one of the two")


def _check_video_rate(spec: ModelSpec, request: SubmitRequest) -> None:
    rate = request.video_fps
    if rate is None:
        return
    ceiling = spec.video.max_fps if spec.video is not None else None
    if ceiling is None:
        raise SettingInvalid("video_fps", f"model '{spec.id}' does not support video_fps")
    if rate > ceiling:
        raise SettingInvalid(
            "video_fps", f"video_fps {rate:.15g} is above the {ceiling} fps ceiling of {spec.id}"
        )
