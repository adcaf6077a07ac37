"""What must hold between the values of a model's table, and between models.

Each rule is a condition that is wrong and the fault that it makes. The rest of the code relies on them (see
``anex.catalog``) and never asks again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anex.decisions.routing import ENGLISH, MULTILINGUAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from config.catalog_file import ModelTable

SERVICE_FLAGS = (
    "--max-model-len",
    "--max-num-seqs",
    "--tensor-parallel-size",
    "--served-model-name",
    "--scheduling-policy",
    "--uds",
)
"""Engine flags that the service sets itself: a catalog's arguments come last and would silently win."""

ROUTED_CHECKPOINTS = (ENGLISH, MULTILINGUAL)
"""The names that a decision model's router gives to its checkpoints."""

GENERATED = "only chat models generate"


def find_faults(tables: Mapping[str, ModelTable], *, allow_fake_engine: bool) -> Iterator[str]:
    """Yield every fault, each with its place: ``<model id>.<key>: <what is wrong>``."""
    for model_id, table in tables.items():
        for rules in (_check_kind, _check_tokens, _check_media, _check_prices, _check_engine):
            for fault in rules(table):
                yield f"{model_id}.{fault}"
        if table.engine.kind == "fake" and not allow_fake_engine:
            yield f"{model_id}.engine.kind: the fake engine needs ANEX_ALLOW_FAKE_ENGINE=1"
    yield from _check_queues(tables)


def _check_kind(table: ModelTable) -> Iterator[str]:
    chat, embed, decide = (table.kind == kind for kind in ("chat", "embed", "decide"))
    if chat != (table.output_max_tokens is not None):
        yield f"output_max_tokens: {'missing' if chat else GENERATED}"
    if chat != (table.throughput.decode_tokens_per_second is not None):
        yield f"throughput.decode_tokens_per_second: {'missing' if chat else GENERATED}"
    if table.reasoning is not None and not chat:
        yield f"reasoning: {GENERATED}"
    if embed != (table.dimensions is not None):
        yield f"dimensions: {'missing' if embed else 'only embedding models have a width'}"
    if decide != (table.decide is not None):
        yield f"decide: {'missing' if decide else 'only decision models take questions'}"
    if decide != bool(table.checkpoints):
        yield f"checkpoints: {'missing' if decide else 'only decision models have several'}"
    if decide == (table.weights is not None):
        yield f"weights: {'a decision model has them in its checkpoints' if decide else 'missing'}"


def _check_tokens(table: ModelTable) -> Iterator[str]:
    if (table.output_max_tokens or 0) > table.context_tokens:
        yield "output_max_tokens: over context_tokens"
    if table.checkpoints and max(each.context_tokens for each in table.checkpoints) != table.context_tokens:
        yield "context_tokens: must be the widest checkpoint's"
    if table.dimensions is not None and table.dimensions.min_width > table.dimensions.max_width:
        yield "dimensions.min_width: over max_width"
    reasoning = table.reasoning
    if reasoning is not None and bool(reasoning.efforts) != (reasoning.default_effort in reasoning.efforts):
        yield "reasoning.default_effort: must be one of efforts"
    wide = table.media_context
    if wide is not None and max(wide.input_tokens, wide.output_tokens) > wide.total_tokens:
        yield "media_context.total_tokens: under input_tokens or output_tokens"
    if wide is not None and not set(wide.media) <= set(table.modalities):
        yield "media_context.media: not among modalities"


def _check_media(table: ModelTable) -> Iterator[str]:
    for name, spec in (("image", table.image), ("audio", table.audio), ("video", table.video)):
        if (name in table.modalities) != (spec is not None):
            yield f"{name}: {'not among modalities' if spec is not None else 'missing'}"
    if len(set(table.modalities)) != len(table.modalities):
        yield "modalities: one stands twice"
    if table.kind != "chat" and "audio" in table.modalities:
        yield "modalities: only chat models take audio"
    if table.kind == "decide" and table.modalities:
        yield "modalities: decision models read text only"
    if table.video is not None and table.video.max_fps is not None:
        if table.video.max_fps < table.video.default_fps:
            yield "video.max_fps: under default_fps"
        if table.kind != "chat":
            yield "video.max_fps: only chat models take a rate"


def _check_prices(table: ModelTable) -> Iterator[str]:
    """Want a price exactly where there is something to pay for: neither missing nor idle."""
    prices, media = table.prices, set(table.modalities)
    chat, clips = table.kind == "chat", bool(media & {"audio", "video"})
    wanted = (
        ("output_dollars_per_million", prices.output_dollars_per_million, chat),
        ("image_dollars", prices.image_dollars, "image" in media),
        ("clip_dollars", prices.clip_dollars, clips),
        ("minute_dollars", prices.minute_dollars, clips and chat),
        ("realtime_factor", prices.realtime_factor, table.realtime),
    )
    for name, price, is_wanted in wanted:
        if (price is not None) != is_wanted:
            yield f"prices.{name}: {'missing' if is_wanted else 'nothing to pay for'}"
    media_price = prices.media_input_dollars_per_million
    if media_price is None and media and not chat:
        yield "prices.media_input_dollars_per_million: missing"
    if media_price is not None and not media:
        yield "prices.media_input_dollars_per_million: nothing to pay for"


def _check_engine(table: ModelTable) -> Iterator[str]:
    engine = table.engine
    for flag in SERVICE_FLAGS:
        if any(arg.split("=")[0] == flag for arg in engine.args):
            yield f"engine.args: {flag} is set by the service"
    if engine.kind != "fake" and (engine.kind == "laya") != (table.kind == "decide"):
        yield "engine.kind: laya serves decision models, and nothing else does"
    if table.checkpoints and sorted(each.name for each in table.checkpoints) != list(ROUTED_CHECKPOINTS):
        yield f"checkpoints: the router chooses between {' and '.join(ROUTED_CHECKPOINTS)}"
    if (engine.kind == "fake") != (table.tokenizer == "bytes"):
        yield "tokenizer: bytes goes with the fake engine, and with no other"
    weights = [each.weights for each in table.checkpoints] + ([table.weights] if table.weights else [])
    for each in weights:
        if (each.source == "none") != (not each.location):
            yield "weights.location: stands for every source but none"
        if (each.source == "none") != (engine.kind == "fake"):
            yield "weights.source: none goes with the fake engine, and with no other"


def _check_queues(tables: Mapping[str, ModelTable]) -> Iterator[str]:
    queues = {model_id: table.queue or model_id for model_id, table in tables.items()}
    counts = Counter(queues.values())
    for model_id, queue in queues.items():
        if counts[queue] > 1:
            yield f"{model_id}.queue: another model is on queue '{queue}'"
        if queue.endswith(".quick"):
            yield f"{model_id}.queue: the ending .quick belongs to the quick queues"
