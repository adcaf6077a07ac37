"""Seeded rows for decision models: states of many languages and shapes, long ones among them, and questions good and bad."""

from __future__ import annotations

from random import Random
from typing import Any

_TEXTS = {
    "en": "the customer was billed twice for March and would like to have the money back today please",
    "de": "wir haben die Rechnung für März zweimal bezahlt und möchten unser Geld bitte zurück",
    "fr": "le client attend une réponse pour sa facture avec les deux paiements du mois",
    "es": "el cliente quiere una respuesta para la factura del mes porque pagó dos veces",
    "pt": "você pode me mandar a nota fiscal depois porque não consigo entrar hoje",
    "sv": "jag behöver hjälp och kan inte logga in på mitt konto",
    "ru": "клиент просит вернуть деньги за март сегодня",
    "zh": "客户 要求 今天 退款 因为 重复 付款",
    "ar": "العميل يريد استرداد المال اليوم",
    "none": "42 2024-03-01 #77 $9.99 -- 🙂 %",
    "odd": "user@acme.com v1.2.3 MON LA EST café Дмитрий λ [MASK] <mask> [SEP] os.path f(x) a=b",
}
WORDS = {language: text.split() for language, text in _TEXTS.items()}
CODES = (None, None, None, None, "de", "en-US", "EN", "", "und", "C.UTF-8", "zh_CN")
DESCRIPTIONS: tuple[Any, ...] = ("", None, 0, False, 1.5, ["a", {"b": "ü"}], {"desc": "late", "n": 2})
BAD_QUESTIONS: tuple[Any, ...] = (
    "no object",
    {"type": "rank", "instructions": "x", "criteria": ["a"]},
    {"type": "noul"},
    {"type": "noul", "instructions": "  "},
    {"type": "noul", "instructions": None},
    {"type": "noul", "instructions": []},
    {"type": "noul", "instructions": "x", "criteria": {"maybe": "y"}},
    {"type": "noul", "instructions": "x", "criteria": ["true"]},
    {"type": "noul", "instructions": "x", "labels": {"true": "a", "false": " a "}},
    {"type": "choice", "instructions": "x"},
    {"type": "choice", "instructions": "x", "criteria": {}},
    {"type": "choice", "instructions": "x", "criteria": ["a", None]},
    {"type": "choice", "instructions": "x", "criteria": [1, True]},
    {"type": "choice", "instructions": "x", "criteria": [["a"]]},
    {"type": "choice", "instructions": "x", "criteria": ["a", "b"], "option_order": [0, 0]},
    {"type": "choice", "instructions": "x", "criteria": ["a", "b"], "labels": None},
    {"type": "score", "instructions": "x", "criteria": {"0": "a"}},
    {"type": "score", "instructions": "x", "criteria": ["a", None]},
    {"type": "score", "instructions": "x", "criteria": []},
)


class DecisionRows:
    """Makes bodies of decision rows, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - reproducible on purpose, guards nothing

    def make(self, count: int) -> list[dict[str, Any]]:
        """Return ``count`` bodies; one in ten holds a question that the model refuses."""
        return [self._make_one() for _ in range(count)]

    def make_text(self, words: int) -> str:
        """Return words of one language, with some of another."""
        home = self._random.choice(list(WORDS))
        text = ""
        for _ in range(words):
            language = home if self._random.random() < 0.9 else self._random.choice(list(WORDS))
            word = self._random.choice(WORDS[language])
            text += (word.upper() if self._random.random() < 0.05 else word) + self._random.choice("     \n")
        return text.strip()

    def _make_one(self) -> dict[str, Any]:
        words = self._random.choice((0, 1, 3, 10, 30, 100, 400, 1500))
        questions = {f"q{place}": self._make_question() for place in range(self._random.choice((1, 1, 2, 5)))}
        if self._random.random() < 0.1:
            questions["bad"] = self._random.choice(BAD_QUESTIONS)
        return {"state": self._make_state(words), "questions": questions, "lang": self._random.choice(CODES)}

    def _make_state(self, words: int) -> str | dict[str, Any]:
        shape = self._random.randrange(4)
        if shape < 2:
            return self.make_text(words)
        if shape == 2:
            return {"body": self.make_text(words)}
        turns = [
            self.make_text(words // 3),
            {"at": 1e22, "said": self.make_text(words // 3)},
            None,
            True,
            2**70,
        ]
        return {"subject": self.make_text(4), "turns": turns}

    def _make_question(self) -> dict[str, Any]:
        kind = self._random.choice(("choice", "score", "noul"))
        instructions: Any = self.make_text(self._random.choice((1, 5, 20, 80))) or "x"
        if self._random.random() < 0.1:
            instructions = {"ask": instructions, "n": [1, "ü"]}
        criteria = {"choice": self._make_options, "score": self._make_levels, "noul": self._make_meanings}[
            kind
        ]()
        question = {"type": kind, "instructions": instructions, "criteria": criteria}
        if kind == "noul" and self._random.random() < 0.2:
            question["labels"] = self._random.choice((None, {"true": " ja", "false": "nein"}))
        if kind != "noul" and self._random.random() < 0.1:
            question["option_order"] = self._random.sample(range(len(criteria)), len(criteria))
        return question

    def _make_options(self) -> Any:
        count = self._random.choice((1, 2, 4, 12, 40, 130, 300))
        if self._random.random() < 0.2:
            return [self._random.choice((place, f"option {place}", place + 0.5)) for place in range(count)]
        return {f"option {place}": self._describe() for place in range(count)}

    def _make_levels(self) -> Any:
        return [self._describe() or "x" for _ in range(self._random.choice((1, 3, 5, 20)))]

    def _make_meanings(self) -> Any:
        return self._random.choice(
            (None, {}, {"true": self._describe()}, {"FALSE": "no", "True": self._describe()})
        )

    def _describe(self) -> Any:
        if self._random.random() < 0.1:
            return self._random.choice(DESCRIPTIONS)
        return self.make_text(self._random.choice((1, 3, 8, 60)))
