"""What is known about each model: the types of the catalog.

Every fact about a model stands in the catalog file (``config/models.toml``), never in code;
``config.catalog`` reads and checks that file into these values. A reader of a ``ModelSpec`` may rely on
what the check refuses: a media spec stands exactly where the modality does, reasoning and output prices
only on chat models, dimensions only on embedding models, checkpoints only on decision models.

Units stand last in names. A price is an integer of nano-dollars (1e-9 $), per 1,000,000 tokens or per item.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from anex.errors import ModelUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

Kind = Literal["chat", "embed", "decide"]
Modality = Literal["image", "audio", "video"]
EngineKind = Literal["vllm", "laya", "fake"]
WeightsSource = Literal["hub", "package", "folder", "none"]
TokenizerKind = Literal["hf", "bytes"]


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """How many tokens one row may hold: on the way in, on the way out, and both together."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class MediaContext:
    """The wider context of rows that carry one of ``media``."""

    media: frozenset[Modality]
    limits: ContextLimits


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model that can think. ``efforts`` is empty where it takes no level."""

    efforts: tuple[str, ...]
    default_effort: str | None
    notice_tokens: int
    """Tokens reserved for the notice that ends thinking at its budget."""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """Images in a row. ``tokens`` is the most that one image makes, whatever its size."""

    tokens: int
    inline_max_bytes: int
    max_items: int


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """Audio clips in a row. Tokens per 1,000 seconds, so that 12.5 a second is an integer."""

    tokens_per_1000_seconds: int
    max_seconds: int
    inline_max_bytes: int
    max_items: int


@dataclass(frozen=True, slots=True)
class VideoSpec:
    """Video clips in a row: ``frame_tokens`` for each of min(ceil(s * fps) + 1, ``max_frames``) frames."""

    frame_tokens: int
    default_fps: int
    max_fps: int | None
    """Highest rate that a job may ask for; None where the model takes no rate."""
    max_frames: int | None
    max_seconds: int | None
    """The model's own ceiling; None where only the context bounds a clip."""
    min_frames: int
    inline_max_bytes: int
    max_items: int


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Widths of a vector that may be asked for; ``max_width`` is the native one."""

    min_width: int
    max_width: int


@dataclass(frozen=True, slots=True)
class DecideSpec:
    """Bounds of a decision row."""

    option_budget_tokens: int
    max_questions: int
    state_max_characters: int


@dataclass(frozen=True, slots=True)
class Prices:
    """Price terms, frozen onto a job with its estimate. All integers of nano-dollars."""

    input_nanos_per_million: int
    """Per 1M input tokens; on an embedding model, of rows that carry text only."""
    output_nanos_per_million: int
    """Per 1M output tokens; 0 where nothing is generated."""
    media_input_nanos_per_million: int
    """Chat: per 1M input tokens made by media. Embedding: per 1M input tokens of rows with media."""
    image_nanos: int
    """Per image."""
    clip_nanos: int
    """Per audio or video clip."""
    minute_nanos: int
    """Per minute of audio or video, charged to the millisecond."""
    realtime_numerator: int
    """A realtime request costs the batch price * numerator / denominator."""
    realtime_denominator: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a model's files come from.

    ``location`` is a Hub repository, a requirement of a package (``name==version``), a folder, or empty for
    ``none``. ``revision`` pins what is served and is frozen onto jobs.
    """

    source: WeightsSource
    location: str
    revision: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One of the checkpoints between which a decision model's router chooses."""

    name: str
    context_tokens: int
    weights: Weights


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """How the model is served. The context is not among ``args``: see ``ModelSpec.served_context_tokens``."""

    kind: EngineKind
    args: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    """Variables that the engine process is given, for options that an engine takes no other way."""
    max_num_seqs: int
    tensor_parallel: int
    stall_seconds: int
    """An engine with requests in flight whose progress stands still this long is killed."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What is assumed of speed and start-up until it has been measured here."""

    prefill_tokens_per_second: int
    decode_tokens_per_second: int
    """1 where nothing is generated: no time of zero tokens needs a case of its own."""
    startup_seconds: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One entry of the catalog."""

    id: str
    kind: Kind
    queue: str
    """The model's part in queue names; no two models share one."""
    modalities: frozenset[Modality]
    """What a row may carry beyond text."""
    context_tokens: int
    output_max_tokens: int
    """Highest output cap of a row; 0 where nothing is generated."""
    media_context: MediaContext | None
    reasoning: Reasoning | None
    image: ImageSpec | None
    audio: AudioSpec | None
    video: VideoSpec | None
    dimensions: Dimensions | None
    decide: DecideSpec | None
    prices: Prices
    minimum_cents: int
    realtime: bool
    weights: Weights
    checkpoints: tuple[Checkpoint, ...]
    """Decision models only; ``weights`` is then the first one's."""
    engine: EngineSpec
    tokenizer: TokenizerKind
    throughput: Throughput

    @property
    def revision(self) -> str:
        """The revision of all files served: what was estimated with one is never run with another."""
        if not self.checkpoints:
            return self.weights.revision
        return "+".join(checkpoint.weights.revision for checkpoint in self.checkpoints)

    @property
    def served_context_tokens(self) -> int:
        """The context that the engine must be started with (vLLM: ``--max-model-len``)."""
        if self.media_context is None:
            return self.context_tokens
        return max(self.context_tokens, self.media_context.limits.total_tokens)

    def context_for(self, media: AbstractSet[Modality]) -> ContextLimits:
        """Return the limits of a row that carries ``media`` (empty for text alone)."""
        if self.media_context is not None and media & self.media_context.media:
            return self.media_context.limits
        return ContextLimits(self.context_tokens, self.output_max_tokens, self.context_tokens)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The models on offer, by id, and the hash of the whole file they stand in.

    The hash covers what is not on offer too, so that processes that offer different models of it agree.
    """

    models: Mapping[str, ModelSpec]
    hash: str

    def get(self, model_id: str) -> ModelSpec:
        """Return the model with this id. Raises ``ModelUnknown``."""
        spec = self.models.get(model_id)
        if spec is None:
            on_offer = ", ".join(self.models)
            raise ModelUnknown(f"unknown model '{model_id}'; the models on offer are: {on_offer}")
        return spec

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self.models.values())

    def __len__(self) -> int:
        return len(self.models)


def make_catalog(specs: Iterable[ModelSpec], offered: AbstractSet[str] | None = None) -> Catalog:
    """Return the catalog of those ``specs`` that are ``offered`` (None: all), in their order."""
    known = {spec.id: spec for spec in specs}
    on_offer = {key: spec for key, spec in known.items() if offered is None or key in offered}
    return Catalog(models=MappingProxyType(on_offer), hash=_hash_specs(known))


def _hash_specs(specs: Mapping[str, ModelSpec]) -> str:
    """SHA-256 (hex) of the canonical content: sorted keys, sorted sets, no white space."""
    content = {key: asdict(spec) for key, spec in specs.items()}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_encode_set)
    return hashlib.sha256(text.encode()).hexdigest()


def _encode_set(value: Any) -> list[str]:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"the catalog holds a {type(value).__name__}, which has no canonical form")
