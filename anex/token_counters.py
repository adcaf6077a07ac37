"""Token counters: how many tokens an engine will read, known without an engine and without a model library.

The same tokenizer file and the same template give the same tokens: tests compare the counts with the
``usage.prompt_tokens`` of a real engine. Make counters after a fork: a tokenizer has threads of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from anex.byte_tokens import count_byte_text, count_byte_tokens
from anex.chat_templates import ChatTemplate, TemplateRefused
from anex.clock import SystemClock
from anex.decisions.tokens import CheckpointReader, DecisionTokenCounter, byte_reader
from anex.errors import ModelFilesMissing
from anex.tokenizer_files import fetch_tokenizer_files, read_chat_template, read_special_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from anex.catalog import Checkpoint, DecideSpec, ModelSpec
    from anex.clock import Clock
    from anex.objects import ObjectStore
    from anex.services import Conversation, TokenCounter

TOKENIZERS_MAX = 2
"""That live in a process: one takes tens to hundreds of megabytes."""

_SYSTEM_CLOCK = SystemClock()


class StoredTokenCounters:
    """Counters from the tokenizer files in the bucket, the latest two kept in memory. Thread-safe."""

    def __init__(self, objects: ObjectStore, cache_dir: Path, clock: Clock = _SYSTEM_CLOCK) -> None:
        """Take the store that holds the files and a folder for local copies, shared with other processes."""
        self._objects = objects
        self._cache_dir = cache_dir
        self._clock = clock
        self._loaded: OrderedDict[tuple[str, str], _Loaded] = OrderedDict()
        self._lock = threading.Lock()

    def for_model(self, spec: ModelSpec) -> TokenCounter:
        """Return a chat or embedding model's counter. Raises ``ModelFilesMissing`` and ``StorageUnavailable``."""
        if spec.tokenizer == "bytes":
            return ByteTokenCounter()
        counter = self._keep(spec, self._load)
        if not isinstance(counter, StoredTokenCounter):
            raise TypeError(f"{spec.id} is a decision model")
        return counter

    def for_decisions(self, spec: ModelSpec) -> DecisionTokenCounter:
        """Return a decision model's counter. Raises ``ModelFilesMissing`` and ``StorageUnavailable``."""
        counter = self._keep(spec, self._load_checkpoints)
        if not isinstance(counter, DecisionTokenCounter):
            raise TypeError(f"{spec.id} is no decision model")
        return counter

    def _keep(self, spec: ModelSpec, load: Callable[[ModelSpec], _Loaded]) -> _Loaded:
        """Return the model's counter, loaded unless it is among the latest."""
        key = (spec.id, spec.revision)
        with self._lock:
            counter = self._loaded.pop(key, None) or load(spec)
            self._loaded[key] = counter
            while len(self._loaded) > 1 and sum(map(_tokenizers, self._loaded.values())) > TOKENIZERS_MAX:
                self._loaded.popitem(last=False)
        return counter

    def _load_checkpoints(self, spec: ModelSpec) -> DecisionTokenCounter:
        if spec.decide is None:
            raise TypeError(f"{spec.id} is no decision model")
        return DecisionTokenCounter(
            {each.name: self._read_checkpoint(spec, spec.decide, each) for each in spec.checkpoints}
        )

    def _read_checkpoint(
        self, spec: ModelSpec, bounds: DecideSpec, checkpoint: Checkpoint
    ) -> CheckpointReader:
        budget = bounds.option_budget_tokens
        if spec.tokenizer == "bytes":
            return byte_reader(checkpoint.context_tokens, budget)
        folder = fetch_tokenizer_files(self._objects, self._cache_dir, spec, checkpoint.name)
        mask_token = read_special_tokens(folder).get("mask_token")
        if mask_token is None:
            raise ModelFilesMissing(
                f"the tokenizer of model '{spec.id}', checkpoint {checkpoint.name}, names no mask token: these are not the files"
                f" of a decision model; correct the catalog's weights and run `anex models pull {spec.id}`"
            )
        tokenizer = StoredTokenCounter(Tokenizer.from_file(str(folder / "tokenizer.json")), None)
        return CheckpointReader(tokenizer.count_bare, mask_token, checkpoint.context_tokens, budget)

    def _load(self, spec: ModelSpec) -> StoredTokenCounter:
        folder = fetch_tokenizer_files(self._objects, self._cache_dir, spec)
        source = read_chat_template(folder)
        if source is None and spec.kind == "chat":
            raise ModelFilesMissing(
                f"the files of model '{spec.id}', revision {spec.revision}, hold no chat template: add "
                f"chat_template.jinja to the model's weights and run `anex models pull {spec.id}`"
            )
        special_tokens = read_special_tokens(folder)
        template = ChatTemplate(source, special_tokens, self._clock) if source is not None else None
        return StoredTokenCounter(Tokenizer.from_file(str(folder / "tokenizer.json")), template)


class StoredTokenCounter:
    """Counts with a model's own tokenizer and chat template; ``template`` is None on models without chat."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        # Files may ask for a fixed length; the engine does not heed it and neither may a count.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._template = template

    def count_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any],
        *,
        opens_answer: bool = True,
    ) -> int:
        """Count a conversation's tokens, by default with the generation prompt; see ``count_chats``."""
        return self.count_bare([self._render(messages, template_kwargs, opens_answer=opens_answer)])[0]

    def count_chats(self, conversations: Sequence[Conversation]) -> list[int]:
        """Count each conversation's tokens, the generation prompt included.

        One that the template refuses counts 0: the engine refuses it too, and it ends as an error row.
        """
        # The template writes the special tokens itself.
        return self.count_bare([self._render(*each) for each in conversations])

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any],
        *,
        opens_answer: bool = True,
    ) -> str:
        """Return the prompt, nothing of a conversation that the template refuses."""
        if self._template is None:
            raise TypeError("this model has no chat template")
        try:
            return self._template.render(messages, template_kwargs, opens_answer=opens_answer)
        except TemplateRefused:
            return ""

    def count_bare(self, texts: list[str]) -> list[int]:
        """Count each text's tokens, none added to those of the text."""
        return [len(each) for each in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Count each text's tokens as an embedding engine reads it, special tokens included."""
        return [len(each) for each in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=True)]


_Loaded = StoredTokenCounter | DecisionTokenCounter


def _tokenizers(counter: _Loaded) -> int:
    return counter.checkpoints if isinstance(counter, DecisionTokenCounter) else 1


class ByteTokenCounter:
    """Counts by the byte rule of ``anex.byte_tokens``."""

    def count_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any],  # noqa: ARG002 # the port's
        *,
        opens_answer: bool = True,
    ) -> int:
        """Count a conversation's tokens, by default with the generation prompt; no template reads ``template_kwargs``."""
        return count_byte_tokens(messages, opens_answer=opens_answer)

    def count_chats(self, conversations: Sequence[Conversation]) -> list[int]:
        """Count each conversation's tokens, the generation prompt included."""
        return [count_byte_tokens(each.messages) for each in conversations]

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Count each text's tokens, markers included."""
        return [count_byte_text(text) for text in texts]
