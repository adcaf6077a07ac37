"""What a job says about all of its rows, as far as rows are read, sampled and run by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.catalog import ModelSpec


@dataclass(frozen=True, slots=True)
class RowSettings:
    """Job-level settings; None is "not set". A row's own value wins over each of them."""

    reasoning: bool | None = None
    reasoning_budget: int | None = None
    """Tokens of thinking; 0 is "no cap"."""
    reasoning_effort: str | None = None
    response_format: Mapping[str, Any] | None = None


def row_thinks(spec: ModelSpec, settings: RowSettings, own: Mapping[str, Any] | None) -> bool:
    """Whether a row thinks: by its own ``enable_thinking``, else the job's ``reasoning``, else it does."""
    if spec.reasoning is None:
        return False
    wanted = (own or {}).get("enable_thinking")
    if wanted is None:
        wanted = settings.reasoning
    return wanted is not False


def row_effort(spec: ModelSpec, settings: RowSettings, own: Mapping[str, Any] | None) -> str | None:
    """Return the effort that a row asks for, None for the default or where the row doesn't think."""
    if not row_thinks(spec, settings, own):
        return None
    effort: str | None = (own or {}).get("reasoning_effort") or settings.reasoning_effort
    return effort


def template_kwargs(spec: ModelSpec, settings: RowSettings, own: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the chat template of a row is rendered with: the row's values over the job's.

    Token counting and the engine's request both take it from here, so both render the same prompt.
    """
    merged = {key: value for key, value in (own or {}).items() if value is not None}
    if "enable_thinking" not in merged and settings.reasoning is not None:
        merged["enable_thinking"] = settings.reasoning
    effort = row_effort(spec, settings, own)
    if effort is not None:
        merged["reasoning_effort"] = effort
    return merged


def row_format(settings: RowSettings, own: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the ``response_format`` that constrains a row; the row's own wins, and type ``text`` is none."""
    wanted = own if own is not None else settings.response_format
    return None if wanted is None or wanted["type"] == "text" else wanted
