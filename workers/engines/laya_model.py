"""The decision model inside the laya engine: rows in, answers or refusals out. Runs in the engine's environment.

Rows are checked before they are answered: the package refuses a whole batch for one bad question. The check takes private functions
(``Agent._check_question``, ``_to_internal``, ``_encode_state``), so the version is pinned here and ``tests/engine`` looks for them.
Checkpoints are folders on this machine; nothing is fetched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import laya

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

VERSION = "0.4.15"

_PROBE = {"probe": {"type": "noul", "instructions": "Does this work?"}}
_BROKEN_TEXT = "a text of this row holds half of a surrogate pair, which is no character"


class EngineUnfit(Exception):
    """The engine can't serve, or no more: what it says is the last line of its log."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One of the router's checkpoints: where it lies, and the context that it reads with."""

    name: str
    folder: Path
    context_tokens: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """A row that the model takes."""

    place: int
    checkpoint: str
    request: dict[str, Any]


class DecisionModel:
    """Both checkpoints behind the package's router. Not thread-safe."""

    def __init__(
        self,
        checkpoints: Sequence[Checkpoint],
        *,
        device: str,
        option_budget_tokens: int,
        sequences_together: int,
    ) -> None:
        """Load the checkpoints and answer a question with each. Raises ``EngineUnfit``."""
        if laya.__version__ != VERSION:
            raise EngineUnfit(f"laya {laya.__version__} is installed where {VERSION} is needed")
        for checkpoint in checkpoints:
            if not checkpoint.folder.is_dir():
                raise EngineUnfit(
                    f"the checkpoint {checkpoint.name} is missing: no folder {checkpoint.folder}"
                )
        self._contexts = {each.name: each.context_tokens for each in checkpoints}
        self._budget_tokens = option_budget_tokens
        self._sequences = sequences_together
        self._device = device
        folders = {each.name: str(each.folder) for each in checkpoints}
        self._router = laya.Router(models=folders, device=device, max_loaded=len(folders))
        self._router.preload(list(folders))
        for language in ("en", "und"):
            self.answer_rows(_PROBE, [{"state": "123", "lang": language}], lambda _: None)

    def answer_rows(
        self, questions: dict[str, Any], rows: Sequence[dict[str, Any]], report: Callable[[int], None]
    ) -> list[dict[str, Any]]:
        """Return an answer or an error for each row; ``report`` gets the tokens read, while it works. Raises ``EngineUnfit``."""
        entries: list[dict[str, Any]] = [{} for _ in rows]
        taken = list(self._take(questions, rows, entries))
        for together in self._batch(taken, len(questions)):
            tokens = 0
            for each, answer in zip(together, self._predict(together), strict=True):
                entries[each.place] = _reduce(answer)
                tokens += answer["usage"]["input_tokens"]
            report(tokens)
        return entries

    def _take(
        self, questions: dict[str, Any], rows: Sequence[dict[str, Any]], entries: list[dict[str, Any]]
    ) -> Iterator[_Taken]:
        """Yield the rows that can be answered; write what is said against the others into their ``entries``."""
        broken = _is_broken(questions)
        refusals: dict[str, str | None] = {}
        for place, row in enumerate(rows):
            if broken or _is_broken(row):
                entries[place] = _refuse(_BROKEN_TEXT)
                continue
            name = self._router.route(row["state"], questions, lang=row.get("lang")).model
            if name not in refusals:
                refusals[name] = self._find_refusal(name, questions)
            refusal = refusals[name]
            if refusal is None:
                yield _Taken(place, name, self._make_request(name, questions, row))
            else:
                entries[place] = _refuse(refusal)

    def _find_refusal(self, name: str, questions: dict[str, Any]) -> str | None:
        """Return what a checkpoint says against questions, None where it takes them: it is the same for every state."""
        agent = self._router.load(name)
        try:
            for question in questions.items():
                agent._check_question(*question)  # noqa: SLF001 - see the module
            internal = {key: agent._to_internal(question) for key, question in questions.items()}  # noqa: SLF001
            agent._encode_state("", list(questions), internal, **self._bounds(name))  # noqa: SLF001
        except (ValueError, TypeError) as fault:
            return str(fault)
        return None

    def _make_request(self, name: str, questions: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        return {
            "state": row["state"],
            "questions": questions,
            "lang": row.get("lang"),
            **self._bounds(name),
        }

    def _bounds(self, name: str) -> dict[str, int]:
        return {"max_len": self._contexts[name], "head_max_len": self._budget_tokens}

    def _batch(self, taken: Sequence[_Taken], questions: int) -> Iterator[list[_Taken]]:
        """Yield rows of one checkpoint, as many as together make up to ``sequences_together`` sequences."""
        size = max(1, self._sequences // questions)
        for name in self._contexts:
            rows = [each for each in taken if each.checkpoint == name]
            yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def _predict(self, together: Sequence[_Taken]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = self._router.predict_batch([each.request for each in together])
        for name in self._contexts:
            self._require_device(name)
        return answers

    def _require_device(self, name: str) -> None:
        """Raise where the package went on without the GPU: it would be slow for good, and nobody told."""
        agent = self._router.load(name)
        if agent.device.type != self._device or agent.cpu_fallback_count:
            reason = agent.last_fallback_reason or "no reason given"
            raise EngineUnfit(
                f"checkpoint {name} fell back from {self._device} to {agent.device.type}: {reason}"
            )


def _is_broken(value: Any) -> bool:
    """Whether a text in there holds half of a surrogate pair: the tokenizer would raise for the whole batch."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _refuse(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": 422}}


def _reduce(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what the contract names of an answer."""
    routing, usage = answer["routing"], answer["usage"]
    return {
        "model": "laya",
        "answers": answer["answers"],
        "usage": {"input_tokens": usage["input_tokens"], "output_tokens": 0},
        "routing": {"model": routing["model"], "reason": routing["reason"]},
    }
