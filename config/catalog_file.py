"""The shape of a catalog file: its tables, and a conversion that tells every fault with its place.

msgspec checks single values; the walk over tables is ours, since ``msgspec.convert`` stops at the first
fault and an operator who edits a file wants all of them. Money is written as a text of dollars and converted
through ``Decimal``: a TOML float could not hold most prices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from anex.catalog import EngineKind, Kind, Modality, TokenizerKind, WeightsSource  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Mapping

Count = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]
Dollars = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]{1,9})?$")]
"""At most nine decimals: a nano-dollar is the smallest amount there is."""
Ratio = Annotated[str, Meta(pattern=r"^[1-9][0-9]*/[1-9][0-9]*$")]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}[a-z0-9]$")]
"""Goes into queue names and object keys."""

T = TypeVar("T", bound=Struct)


class MediaContextTable(Struct):
    """See ``anex.catalog.MediaContext``."""

    media: list[Modality]
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


class ReasoningTable(Struct):
    """See ``anex.catalog.Reasoning``."""

    notice_tokens: Count
    efforts: list[Text] = []
    default_effort: Text | None = None


class ImageTable(Struct):
    """See ``anex.catalog.ImageSpec``."""

    tokens: Count
    inline_max_mib: Count
    max_items: Count


class AudioTable(Struct):
    """See ``anex.catalog.AudioSpec``."""

    tokens_per_1000_seconds: Count
    max_seconds: Count
    inline_max_mib: Count
    max_items: Count


class VideoTable(Struct):
    """See ``anex.catalog.VideoSpec``."""

    frame_tokens: Count
    default_fps: Count
    min_frames: Count
    inline_max_mib: Count
    max_items: Count
    max_fps: Count | None = None
    max_frames: Count | None = None
    max_seconds: Count | None = None


class DimensionsTable(Struct):
    """See ``anex.catalog.Dimensions``."""

    min_width: Count
    max_width: Count


class DecideTable(Struct):
    """See ``anex.catalog.DecideSpec``."""

    option_budget_tokens: Count
    max_questions: Count
    state_max_characters: Count


class PricesTable(Struct):
    """See ``anex.catalog.Prices``. Which of the optional ones must stand follows from kind and media."""

    input_dollars_per_million: Dollars
    output_dollars_per_million: Dollars | None = None
    media_input_dollars_per_million: Dollars | None = None
    image_dollars: Dollars | None = None
    clip_dollars: Dollars | None = None
    minute_dollars: Dollars | None = None
    realtime_factor: Ratio | None = None


class WeightsTable(Struct):
    """See ``anex.catalog.Weights``."""

    source: WeightsSource
    revision: Text
    dtype: Text
    location: str = ""


class CheckpointTable(Struct):
    """See ``anex.catalog.Checkpoint``."""

    name: Name
    context_tokens: Count
    weights: WeightsTable


class EngineTable(Struct):
    """See ``anex.catalog.EngineSpec``."""

    kind: EngineKind
    max_num_seqs: Count
    stall_seconds: Count
    tensor_parallel: Count = 1
    args: list[str] = []
    environment: dict[str, str] = {}


class ThroughputTable(Struct):
    """See ``anex.catalog.Throughput``."""

    prefill_tokens_per_second: Count
    startup_seconds: Count
    decode_tokens_per_second: Count | None = None


class ModelTable(Struct):
    """One model's table; its name in the file is the model's id."""

    kind: Kind
    context_tokens: Count
    minimum_cents: Count
    realtime: bool
    tokenizer: TokenizerKind
    prices: PricesTable
    engine: EngineTable
    throughput: ThroughputTable
    queue: Name | None = None
    modalities: list[Modality] = []
    output_max_tokens: Count | None = None
    media_context: MediaContextTable | None = None
    reasoning: ReasoningTable | None = None
    image: ImageTable | None = None
    audio: AudioTable | None = None
    video: VideoTable | None = None
    dimensions: DimensionsTable | None = None
    decide: DecideTable | None = None
    weights: WeightsTable | None = None
    checkpoints: list[CheckpointTable] = []


def convert_table(value: Any, table: type[T], place: str, faults: list[str]) -> T | None:
    """Return the ``table`` that a parsed TOML ``value`` describes, or None after adding its faults."""
    if not isinstance(value, dict):
        faults.append(f"{place}: expected is a table")
        return None
    faults_before = len(faults)
    known = {each.name: each for each in msgspec.structs.fields(table)}
    faults.extend(f"{place}.{name}: unknown key" for name in value if name not in known)
    faults.extend(
        f"{place}.{name}: missing" for name, each in known.items() if each.required and name not in value
    )
    converted = {
        name: _convert_value(value[name], each.type, f"{place}.{name}", faults)
        for name, each in known.items()
        if name in value
    }
    return table(**converted) if len(faults) == faults_before else None


def _convert_value(value: Any, wanted: Any, place: str, faults: list[str]) -> Any:
    """Convert a nested table, a list of tables, or a plain value."""
    table = _table_in(wanted)
    if table is not None and isinstance(value, list):
        return [convert_table(each, table, f"{place}[{index}]", faults) for index, each in enumerate(value)]
    if table is not None:
        return convert_table(value, table, place, faults)
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        faults.append(f"{place}: {error}")
        return None


def _table_in(wanted: Any) -> type[Struct] | None:
    """Find the table in ``Table``, ``Table | None`` and ``list[Table]``."""
    for each in (wanted, *get_args(wanted)):
        if isinstance(each, type) and issubclass(each, Struct):
            return each
    return None


def convert_tables(content: Mapping[str, Any], faults: list[str]) -> dict[str, ModelTable]:
    """Convert a whole file to the tables that could be read, by model id, and add all faults."""
    tables = {}
    for model_id, value in content.items():
        try:
            msgspec.convert(model_id, Name)
        except msgspec.ValidationError:
            faults.append(f"{model_id}: an id is 2 to 64 of a-z, 0-9, '.' and '-'")
        table = convert_table(value, ModelTable, model_id, faults)
        if table is not None:
            tables[model_id] = table
    return tables
