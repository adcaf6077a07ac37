"""Loads a catalog file: parse, check all of it, build the values the core knows."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from typing import TYPE_CHECKING

from anex.catalog import (
    AudioSpec,
    Catalog,
    Checkpoint,
    ContextLimits,
    DecideSpec,
    Dimensions,
    EngineSpec,
    ImageSpec,
    MediaContext,
    ModelSpec,
    Prices,
    Reasoning,
    Throughput,
    VideoSpec,
    Weights,
    make_catalog,
)
from anex.errors import AnexError
from config.catalog_file import convert_tables
from config.catalog_rules import find_faults

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path
    from typing import Any

    from config.catalog_file import (
        DecideTable,
        DimensionsTable,
        EngineTable,
        MediaContextTable,
        ModelTable,
        PricesTable,
        ReasoningTable,
        WeightsTable,
    )

NANOS_PER_DOLLAR = 1_000_000_000
MIB = 1 << 20


class CatalogInvalid(AnexError):
    """The catalog file cannot be used; each of ``faults`` names the file and the place in it."""

    code = "invalid_catalog"

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def load_catalog(
    path: Path, offered: AbstractSet[str] | None = None, *, allow_fake_engine: bool = False
) -> Catalog:
    """Return the catalog of ``path``, reduced to the models ``offered`` (None: all).

    Raises ``CatalogInvalid`` with every fault there is. A catalog with a fake engine is refused unless it is
    allowed: nobody may be served made-up answers by an oversight.
    """
    faults: list[str] = []
    tables = convert_tables(_read_toml(path), faults)
    faults.extend(find_faults(tables, allow_fake_engine=allow_fake_engine))
    if faults:
        raise CatalogInvalid([f"{path.name}: {fault}" for fault in faults])
    _check_offered(path, tables, offered)
    return make_catalog([_build_spec(model_id, table) for model_id, table in tables.items()], offered)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CatalogInvalid([f"{path}: cannot be read ({error.strerror})"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogInvalid([f"{path.name}: not TOML: {error}"]) from error


def _check_offered(path: Path, tables: Mapping[str, ModelTable], offered: AbstractSet[str] | None) -> None:
    missing = sorted(offered - tables.keys()) if offered else []
    if missing:
        raise CatalogInvalid(
            [f"{path.name}: '{name}' is set in ANEX_MODELS_OFFERED and stands nowhere" for name in missing]
        )
    if not tables:
        raise CatalogInvalid([f"{path.name}: holds no model"])


def _build_spec(model_id: str, table: ModelTable) -> ModelSpec:
    """Build a checked table's value."""
    checkpoints = tuple(
        Checkpoint(each.name, each.context_tokens, _build_weights(each.weights)) for each in table.checkpoints
    )
    main_weights = table.weights or table.checkpoints[0].weights
    return ModelSpec(
        id=model_id,
        kind=table.kind,
        queue=table.queue or model_id,
        modalities=frozenset(table.modalities),
        context_tokens=table.context_tokens,
        output_max_tokens=table.output_max_tokens or 0,
        media_context=_build_media_context(table.media_context),
        reasoning=_build_reasoning(table.reasoning),
        **_build_media(table),
        dimensions=_build_dimensions(table.dimensions),
        decide=_build_decide(table.decide),
        prices=_build_prices(table.prices),
        minimum_cents=table.minimum_cents,
        realtime=table.realtime,
        weights=_build_weights(main_weights),
        checkpoints=checkpoints,
        engine=_build_engine(table.engine),
        tokenizer=table.tokenizer,
        throughput=Throughput(
            prefill_tokens_per_second=table.throughput.prefill_tokens_per_second,
            decode_tokens_per_second=table.throughput.decode_tokens_per_second or 1,
            startup_seconds=table.throughput.startup_seconds,
        ),
    )


def _build_media(table: ModelTable) -> dict[str, Any]:
    """Return the three media specs; sizes become bytes (1 MiB = 1,048,576)."""
    image, audio, video = table.image, table.audio, table.video
    return {
        "image": image and ImageSpec(image.tokens, image.inline_max_mib * MIB, image.max_items),
        "audio": audio
        and AudioSpec(
            tokens_per_1000_seconds=audio.tokens_per_1000_seconds,
            max_seconds=audio.max_seconds,
            inline_max_bytes=audio.inline_max_mib * MIB,
            max_items=audio.max_items,
        ),
        "video": video
        and VideoSpec(
            frame_tokens=video.frame_tokens,
            default_fps=video.default_fps,
            max_fps=video.max_fps,
            max_frames=video.max_frames,
            max_seconds=video.max_seconds,
            min_frames=video.min_frames,
            inline_max_bytes=video.inline_max_mib * MIB,
            max_items=video.max_items,
        ),
    }


def _build_media_context(table: MediaContextTable | None) -> MediaContext | None:
    if table is None:
        return None
    limits = ContextLimits(table.input_tokens, table.output_tokens, table.total_tokens)
    return MediaContext(frozenset(table.media), limits)


def _build_reasoning(table: ReasoningTable | None) -> Reasoning | None:
    if table is None:
        return None
    return Reasoning(tuple(table.efforts), table.default_effort, table.notice_tokens)


def _build_dimensions(table: DimensionsTable | None) -> Dimensions | None:
    return Dimensions(table.min_width, table.max_width) if table is not None else None


def _build_decide(table: DecideTable | None) -> DecideSpec | None:
    if table is None:
        return None
    return DecideSpec(
        option_budget_tokens=table.option_budget_tokens,
        max_questions=table.max_questions,
        state_max_characters=table.state_max_characters,
    )


def _build_prices(table: PricesTable) -> Prices:
    input_price = _to_nanos(table.input_dollars_per_million)
    media_price = table.media_input_dollars_per_million
    numerator, _, denominator = (table.realtime_factor or "1/1").partition("/")
    return Prices(
        input_nanos_per_million=input_price,
        output_nanos_per_million=_to_nanos(table.output_dollars_per_million),
        media_input_nanos_per_million=input_price if media_price is None else _to_nanos(media_price),
        image_nanos=_to_nanos(table.image_dollars),
        clip_nanos=_to_nanos(table.clip_dollars),
        minute_nanos=_to_nanos(table.minute_dollars),
        realtime_numerator=int(numerator),
        realtime_denominator=int(denominator),
    )


def _build_weights(table: WeightsTable) -> Weights:
    return Weights(table.source, table.location, table.revision, table.dtype)


def _build_engine(table: EngineTable) -> EngineSpec:
    return EngineSpec(
        kind=table.kind,
        args=tuple(table.args),
        environment=tuple(sorted(table.environment.items())),
        max_num_seqs=table.max_num_seqs,
        tensor_parallel=table.tensor_parallel,
        stall_seconds=table.stall_seconds,
    )


def _to_nanos(dollars: str | None) -> int:
    """Convert a text of dollars to nano-dollars, exactly: the file's pattern admits nine decimals."""
    return int(Decimal(dollars or 0) * NANOS_PER_DOLLAR)
