"""Whether a text is one that the English checkpoint reads: the rule of laya's router (0.4.15), as far as it decides that.

The rule is a heuristic over scripts, function words and letters. It is repeated here because the checkpoint decides how many
tokens a row is billed for, and planners load no model library; ``tests/engine`` compares verdicts with the package's own. What it
knows of languages stands in ``languages.toml``.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

TEXT_CHARACTERS_MAX = 4000
"""Of a state, and of a line, that are looked at."""
NESTING_MAX = 6

FOREIGN_LETTERS_RATE = 0.02
FOREIGN_LETTERS_VETO_RATE = 0.06
WORDS_MIN = 4
"""Fewer name no language."""
LINE_MIN_CHARACTERS = 7
"""A shorter line holds neither four words nor ten letters."""

OTHER_SCRIPT_SHARE = 0.2
OTHER_SCRIPT_LONG_SHARE = 0.1
OTHER_SCRIPT_LONG_LETTERS = 10
"""Of a long text a smaller share is a message of its own."""

CAPITALS_WORD_MIN = 5
CAPITALS_STOPWORD_MIN = 4
"""A line in capitals is a language's, not a row of acronyms, where it has a word and a function word of these lengths."""

_LATIN_END = 0x02B0
_LATIN_ABOVE = ((0x1E00, 0x1EFF), (0xFF21, 0xFF3A), (0xFF41, 0xFF5A))

_WORD = re.compile(r"[^\W\d_]+")
_LONG_WORD = re.compile(r"[^\W\d_]{2,}")
_ADDRESS = re.compile(r"(?<![\w-])[\w-]*(?:[.@][\w-]+)+")
"""``user@acme.com``, ``v1.2``: no prose. The look-behind keeps it linear on long words."""
_COMPOUND = re.compile(r"[^\W_][._/\\][^\W_]")
_CODE = re.compile(r"[=;{}\[\]]|\w\(")

_Range = tuple[int, int]


def _parse_ranges(text: str) -> list[_Range]:
    pairs = (each.split("-") for each in text.split())
    return [(int(first, 16), int(last, 16)) for first, last in pairs]


_FACTS: Final[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("languages.toml").read_text(encoding="utf-8")
)
_WORDS: Final[dict[str, frozenset[str]]] = {
    language: frozenset(words.split()) for language, words in _FACTS["words"].items()
}
_FOREIGN_LETTERS = frozenset(_FACTS["foreign_letters"])
_WITHOUT_FOREIGN = dict.fromkeys(map(ord, _FOREIGN_LETTERS))
_NORDIC = frozenset(_FACTS["nordic_words"].split())
_SHORT_SWEDISH = frozenset(_FACTS["short_swedish_words"].split())
_COUNTED_ONCE = frozenset(_FACTS["english_collisions"].split())
_OF_HOW_MANY: Counter[str] = Counter(word for words in _WORDS.values() for word in words)
_SHARED = _NORDIC | {word for word, languages in _OF_HOW_MANY.items() if languages > 1}
_ENGLISH_ONLY = _WORDS["en"] - _SHARED
_YOUNG_LETTERS = _parse_ranges(_FACTS["young_letters"])
_SCRIPTS = sorted(
    (first, last, script)
    for script, ranges in _FACTS["scripts"].items()
    for first, last in _parse_ranges(ranges)
)
_SCRIPT_STARTS = [first for first, _, _ in _SCRIPTS]


@dataclass(frozen=True, slots=True)
class _Letters:
    """The letters of a text: how many are Latin, the most of one other script, and all."""

    latin: int
    most_of_another: int
    total: int

    @property
    def other_share(self) -> float:
        return round(1.0 - self.latin / self.total, 4) if self.total else 0.0


@dataclass(frozen=True, slots=True)
class _Named:
    """What the words and letters of a Latin text say."""

    language: str | None
    foreign_rate: float
    looks_foreign: bool
    """Whether it is no English one although it names no language."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a text is taken for; ``script`` is None without letters, else "latin" or "other"."""

    script: str | None
    language: str | None = None
    foreign_rate: float = 0.0
    looks_foreign: bool = False

    @property
    def is_english(self) -> bool:
        """Whether nothing speaks against English: what names no language may pass."""
        if self.script != "latin":
            return self.script is None
        return self.language == "en" or (self.language is None and not self.looks_foreign)


def reads_as_english(state: Any) -> bool:
    """Whether the state is English beyond doubt, its every line and value too. Keys of objects are not looked at."""
    texts = list(_texts(state))
    reading = _read(_join(texts))
    if reading.script != "latin" or reading.language != "en":
        return False
    if (len(texts) > 1 or any("\n" in text for text in texts)) and _has_foreign_line(texts):
        return False
    return isinstance(state, str) or not any(_is_foreign_value(text) for text in texts)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > NESTING_MAX:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each, depth + 1)


def _join(texts: Sequence[str]) -> str:
    taken: list[str] = []
    room = TEXT_CHARACTERS_MAX
    for text in texts:
        if room <= 0:
            break
        taken.append(text[:room])
        room -= len(text) + 1
    return " ".join(taken)[:TEXT_CHARACTERS_MAX]


def _read(text: str) -> _Reading:
    letters = _count_letters(text)
    if letters.total == 0:
        return _Reading(None)
    known = round(letters.other_share * sum(map(str.isalpha, text))) if letters.other_share else 0
    outweighs = _outweighs(letters.other_share, known)
    if letters.latin <= letters.most_of_another or (outweighs and _has_other_words(text)):
        return _Reading("other")
    named = _name_language(text)
    language = named.language
    if language not in {None, "en"} and not outweighs:
        language = _doubt_capitals(text, named)
    return _Reading("latin", language, round(named.foreign_rate, 4), named.looks_foreign)


def _count_letters(text: str) -> _Letters:
    if text.isascii():
        # How many doesn't matter where all are of one script.
        latin = int(any(map(str.isalpha, text)))
        return _Letters(latin, 0, latin)
    counts: Counter[str] = Counter()
    for character in text:
        if _is_letter(character):
            code = ord(character)
            is_latin = code < _LATIN_END or any(first <= code <= last for first, last in _LATIN_ABOVE)
            counts["latin" if is_latin else _script_of(character) or "unlisted"] += 1
    latin = counts.pop("latin", 0)
    return _Letters(latin, max(counts.values(), default=0), latin + counts.total())


def _is_letter(character: str) -> bool:
    if character.isalpha():
        return True
    code = ord(character)
    if code < _YOUNG_LETTERS[0][0] or unicodedata.category(character) != "Cn":
        return False
    return any(first <= code <= last for first, last in _YOUNG_LETTERS)


def _script_of(character: str) -> str | None:
    code = ord(character)
    place = bisect_right(_SCRIPT_STARTS, code) - 1
    if place < 0:
        return None
    _, last, script = _SCRIPTS[place]
    return script if code <= last else None


def _outweighs(other_share: float, other_letters: int) -> bool:
    """Whether the letters of other scripts carry a text that is Latin for the most part."""
    return other_share >= OTHER_SCRIPT_SHARE or (
        other_share >= OTHER_SCRIPT_LONG_SHARE and other_letters >= OTHER_SCRIPT_LONG_LETTERS
    )


def _has_other_words(text: str) -> bool:
    """Whether other scripts stand there as words, not as a symbol or a name: two letters or more, the first no capital."""
    if text.isascii():
        return False
    first, length, script = "", 0, None
    for character in text:
        if unicodedata.combining(character):
            continue
        found = _script_of(character)
        if found is not None and found == script:
            length += 1
        else:
            first, length, script = character, 1, found
        if script is not None and length > 1 and not first.isupper():
            return True
    return False


def _name_language(text: str) -> _Named:
    # A capital İ becomes two characters in lower case, which no list knows.
    words = _WORD.findall(_ADDRESS.sub(" ", text).replace("İ", "i").lower())
    lowered = text.lower()
    rate = (len(lowered) - len(lowered.translate(_WITHOUT_FOREIGN))) / max(1, len(lowered))
    foreign = rate >= FOREIGN_LETTERS_RATE
    distinct = set(words)
    if 1 < len(words) < WORDS_MIN and distinct & _SHORT_SWEDISH:
        return _Named("sv", rate, foreign)
    nordic = bool(distinct & _NORDIC) and not distinct & _ENGLISH_ONLY
    language = _weigh_words(words, distinct, rate) if len(words) >= WORDS_MIN else None
    return _Named(language, rate, foreign or (language is None and nordic))


def _weigh_words(words: Sequence[str], distinct: AbstractSet[str], rate: float) -> str | None:
    counts = Counter(words)
    scores = {
        language: sum(1 if word in _COUNTED_ONCE else counts[word] for word in known & distinct)
        for language, known in _WORDS.items()
    }
    english = scores.pop("en")
    # Words that several languages have in common name none of them.
    named = [language for language in scores if (_WORDS[language] & distinct) - _SHARED]
    best = max(named, key=scores.__getitem__, default=None)
    foreign = rate >= FOREIGN_LETTERS_RATE
    if best is not None and scores[best] >= max(2, english if foreign else english + 2):
        return best
    if best == "sv" and {"inte", "kan"} <= distinct and words[0] in {"kan", "jag", "vi"} and english <= 1:
        return best
    return "en" if english and (not foreign or _is_english_all_the_same(distinct, rate)) else None


def _is_english_all_the_same(distinct: AbstractSet[str], rate: float) -> bool:
    """Whether one accented word stands in a text that is English otherwise."""
    accented = sum(not _FOREIGN_LETTERS.isdisjoint(word) for word in distinct)
    return rate < FOREIGN_LETTERS_VETO_RATE and len(distinct & _ENGLISH_ONLY) > 1 and accented <= 1


def _doubt_capitals(text: str, named: _Named) -> str | None:
    """Return the language of a foreign text without what acronyms say for it."""
    if _is_shouted(text):
        return named.language if _is_proved(_WORD.findall(text), named) else None
    capitals = [word for word in _LONG_WORD.findall(text) if word.isupper()]
    if not capitals or any(len(word) >= CAPITALS_WORD_MIN for word in capitals):
        return named.language
    return _name_language(_blank_capitals(text)).language


def _is_shouted(text: str) -> bool:
    return any(map(str.isupper, text)) and not any(map(str.islower, text))


def _is_proved(words: Sequence[str], named: _Named) -> bool:
    """Whether words in capitals say more for a language than acronyms would."""
    if all(len(word) < CAPITALS_WORD_MIN for word in words):
        return False
    if named.foreign_rate >= FOREIGN_LETTERS_RATE:
        return True
    return any(len(word) >= CAPITALS_STOPWORD_MIN for word in _own_words(words, named))


def _own_words(words: Sequence[str], named: _Named) -> set[str]:
    return {word.lower() for word in words} & _WORDS.get(named.language or "", frozenset())


def _blank_capitals(text: str) -> str:
    return _LONG_WORD.sub(lambda match: " " if match.group().isupper() else match.group(), text)


def _has_foreign_line(texts: Sequence[str]) -> bool:
    """Whether some line of a text that is English as a whole is prose of another language."""
    room = TEXT_CHARACTERS_MAX
    for line in (line for text in texts for line in text.split("\n")):
        if room <= 0:
            return False
        if _is_foreign_prose(line[:room]):
            return True
        room -= len(line)
    return False


def _is_foreign_prose(line: str) -> bool:
    if not line.strip() or _CODE.search(line):
        return False
    prose = " ".join(token for token in line.split() if not _COMPOUND.search(token))
    shouted = _is_shouted(prose)
    if not shouted:
        prose = _blank_capitals(prose)
    words = _WORD.findall(prose)
    if len(words) < WORDS_MIN:
        return False
    named = _name_language(prose)
    if named.language in {None, "en"} or (shouted and not _is_proved(words, named)):
        return False
    return len(_own_words(words, named)) > 1


def _is_foreign_value(text: str) -> bool:
    """Whether a value of an object holds a line that the English checkpoint can't read."""
    return any(
        _is_foreign_line(line[:TEXT_CHARACTERS_MAX])
        for line in text.split("\n")
        if len(line) >= LINE_MIN_CHARACTERS
    )


def _is_foreign_line(line: str) -> bool:
    if not line.strip() or _CODE.search(line):
        return False
    reading = _read(line)
    if reading.is_english:
        return False
    if reading.language not in {None, "en"} and _is_foreign_prose(line):
        return True
    if reading.script == "other":
        return _has_other_words(line) and sum(map(str.isalpha, line)) >= OTHER_SCRIPT_LONG_LETTERS
    return reading.foreign_rate >= FOREIGN_LETTERS_RATE and len(_WORD.findall(line)) >= WORDS_MIN
