"""Catalogs: the shipped files hold the facts they must; a wrong one is refused with every fault's place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anex.catalog import Catalog, ContextLimits, ModelSpec, make_catalog
from anex.errors import ModelUnknown
from config.catalog import CatalogInvalid, load_catalog
from config.settings import CATALOGS

TEST_CATALOG = Path(__file__).parents[1] / "support" / "models.test.toml"

CHAT = """
[tiny]
kind = "chat"
context_tokens = 100
output_max_tokens = 100
minimum_cents = 1
realtime = false
tokenizer = "hf"
weights = { source = "hub", location = "a/b", revision = "1", dtype = "bf16" }
prices = { input_dollars_per_million = "0.06", output_dollars_per_million = "0.24" }
engine = { kind = "vllm", max_num_seqs = 8, stall_seconds = 180 }
throughput = { prefill_tokens_per_second = 10, decode_tokens_per_second = 10, startup_seconds = 1 }
"""
IMAGE = "image = { tokens = 10, inline_max_mib = 1, max_items = 1 }\n"
VIDEO = "video = { frame_tokens = 1, default_fps = 1, min_frames = 2, inline_max_mib = 1, max_items = 1 }\n"


@pytest.fixture(scope="module")
def models() -> Catalog:
    return load_catalog(CATALOGS / "models.toml")


def load_text(tmp_path: Path, text: str, **options: Any) -> Catalog:
    path = tmp_path / "models.toml"
    path.write_text(text, "utf-8")
    return load_catalog(path, **options)


def faults_of(tmp_path: Path, text: str, **options: Any) -> list[str]:
    with pytest.raises(CatalogInvalid) as caught:
        load_text(tmp_path, text, **options)
    return caught.value.faults


def longest_clip_seconds(spec: ModelSpec, fps: int) -> int:
    """Compute min(the model's ceiling, floor((floor(context / frame tokens) - 1) / rate))."""
    assert spec.video is not None
    context = spec.context_for({"video"}).input_tokens
    seconds = (context // spec.video.frame_tokens - 1) // fps
    return seconds if spec.video.max_seconds is None else min(seconds, spec.video.max_seconds)


# The files that ship
def test_the_eight_models_are_on_offer(models: Catalog) -> None:
    assert list(models.models) == [
        "qwen3.8-27b",
        "nemotron-3-nano-omni-30b",
        "gemma4-12b",
        "qwen3-14b",
        "qwen3-embedding-8b",
        "qwen3-vl-embedding-8b",
        "qwen3-vl-embedding-2b",
        "laya",
    ]


@pytest.mark.parametrize(
    ("model_id", "input_nanos", "output_nanos", "media_nanos", "minimum_cents"),
    [
        ("qwen3.8-27b", 220_000_000, 880_000_000, 220_000_000, 25),
        ("nemotron-3-nano-omni-30b", 80_000_000, 300_000_000, 80_000_000, 25),
        ("gemma4-12b", 60_000_000, 240_000_000, 60_000_000, 25),
        ("qwen3-14b", 60_000_000, 240_000_000, 60_000_000, 25),
        ("qwen3-embedding-8b", 30_000_000, 0, 30_000_000, 5),
        ("qwen3-vl-embedding-8b", 30_000_000, 0, 80_000_000, 5),
        ("qwen3-vl-embedding-2b", 7_000_000, 0, 20_000_000, 5),
        ("laya", 5_000_000, 0, 5_000_000, 5),
    ],
)
def test_prices_per_million_tokens(
    models: Catalog,
    model_id: str,
    input_nanos: int,
    output_nanos: int,
    media_nanos: int,
    minimum_cents: int,
) -> None:
    spec = models.get(model_id)

    assert spec.prices.input_nanos_per_million == input_nanos
    assert spec.prices.output_nanos_per_million == output_nanos
    assert spec.prices.media_input_nanos_per_million == media_nanos
    assert spec.minimum_cents == minimum_cents
    assert spec.realtime == (spec.kind != "chat")
    if spec.realtime:
        assert (spec.prices.realtime_numerator, spec.prices.realtime_denominator) == (3, 2)


@pytest.mark.parametrize(
    ("model_id", "image_nanos", "clip_nanos", "minute_nanos"),
    [
        ("qwen3.8-27b", 50_000, 100_000, 500_000),
        ("nemotron-3-nano-omni-30b", 50_000, 100_000, 500_000),
        ("gemma4-12b", 50_000, 100_000, 500_000),
        ("qwen3-14b", 0, 0, 0),
        ("qwen3-vl-embedding-8b", 4_000, 60_000, 0),
        ("qwen3-vl-embedding-2b", 2_000, 20_000, 0),
    ],
)
def test_prices_per_item(
    models: Catalog, model_id: str, image_nanos: int, clip_nanos: int, minute_nanos: int
) -> None:
    prices = models.get(model_id).prices

    assert (prices.image_nanos, prices.clip_nanos, prices.minute_nanos) == (
        image_nanos,
        clip_nanos,
        minute_nanos,
    )


@pytest.mark.parametrize(
    ("model_id", "fps", "seconds"),
    [
        ("qwen3.8-27b", 1, 779),
        ("qwen3.8-27b", 2, 389),
        ("qwen3.8-27b", 20, 38),
        ("nemotron-3-nano-omni-30b", 1, 60),
        ("nemotron-3-nano-omni-30b", 2, 60),
        ("nemotron-3-nano-omni-30b", 20, 6),
        ("gemma4-12b", 1, 30),
        ("qwen3-vl-embedding-8b", 1, 24),
        ("qwen3-vl-embedding-2b", 1, 24),
    ],
)
def test_the_longest_clips_follow_from_the_facts(
    models: Catalog, model_id: str, fps: int, seconds: int
) -> None:
    assert longest_clip_seconds(models.get(model_id), fps) == seconds


def test_audio_rates_are_exact(models: Catalog) -> None:
    nemotron, gemma = models.get("nemotron-3-nano-omni-30b").audio, models.get("gemma4-12b").audio
    assert nemotron is not None
    assert gemma is not None

    assert nemotron.tokens_per_1000_seconds * nemotron.max_seconds == 30_000 * 1000
    assert (gemma.tokens_per_1000_seconds, gemma.max_seconds) == (25_000, 30)
    assert (nemotron.inline_max_bytes, gemma.inline_max_bytes) == (90 << 20, 20 << 20)


def test_media_widen_the_context_of_one_model_only(models: Catalog) -> None:
    spec = models.get("qwen3.8-27b")

    assert spec.context_for(set()) == ContextLimits(32768, 32768, 32768)
    assert spec.context_for({"image"}) == ContextLimits(131072, 32768, 131072)
    assert spec.served_context_tokens == 131072
    assert [each.id for each in models if each.media_context is not None] == ["qwen3.8-27b"]


def test_thinking_and_effort(models: Catalog) -> None:
    reasoning = {each.id: each.reasoning for each in models if each.reasoning is not None}

    assert set(reasoning) == {"qwen3.8-27b", "nemotron-3-nano-omni-30b", "qwen3-14b"}
    assert reasoning["qwen3.8-27b"].efforts == ("low", "medium", "xhigh")
    assert reasoning["qwen3.8-27b"].default_effort == "xhigh"
    assert reasoning["qwen3-14b"].efforts == ()


def test_widths_and_decisions(models: Catalog) -> None:
    widths = {each.id: each.dimensions for each in models if each.dimensions is not None}

    assert {key: (each.min_width, each.max_width) for key, each in widths.items()} == {
        "qwen3-embedding-8b": (32, 4096),
        "qwen3-vl-embedding-8b": (64, 4096),
        "qwen3-vl-embedding-2b": (64, 2048),
    }
    laya = models.get("laya")
    assert [(each.name, each.context_tokens) for each in laya.checkpoints] == [
        ("english", 512),
        ("multilingual", 1024),
    ]
    assert laya.revision == "main+main"


def test_the_local_catalog_needs_no_gpu() -> None:
    local = load_catalog(CATALOGS / "models.local.toml")

    assert [each.id for each in local] == ["smollm2-135m", "all-minilm-l6-v2"]
    assert {each.weights.source for each in local} == {"package"}
    assert local.get("smollm2-135m").served_context_tokens == 1024


def test_the_fake_engine_is_never_selected_silently() -> None:
    assert len(load_catalog(TEST_CATALOG, allow_fake_engine=True)) == 6
    with pytest.raises(CatalogInvalid, match="ANEX_ALLOW_FAKE_ENGINE=1"):
        load_catalog(TEST_CATALOG)


# What a catalog answers
def test_an_unknown_model_is_told_what_is_on_offer() -> None:
    catalog = load_catalog(CATALOGS / "models.toml", frozenset({"laya", "qwen3-14b"}))

    assert list(catalog.models) == ["qwen3-14b", "laya"]
    with pytest.raises(ModelUnknown, match=r"'gemma4-12b'.* on offer are: qwen3-14b, laya"):
        catalog.get("gemma4-12b")


def test_the_hash_covers_the_file_and_not_the_offer(models: Catalog) -> None:
    part = load_catalog(CATALOGS / "models.toml", frozenset({"laya"}))
    dearer = [replace(each, minimum_cents=each.minimum_cents + 1) for each in models]

    assert part.hash == models.hash == make_catalog(list(models)).hash
    assert make_catalog(dearer).hash != models.hash


# What is refused
def test_a_good_table_loads(tmp_path: Path) -> None:
    assert load_text(tmp_path, CHAT).get("tiny").queue == "tiny"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            'prices = { input_dollars_per_million = "0.06", ',
            "prices = { ",
            "prices.input_dollars_per_million: missing",
        ),
        (', output_dollars_per_million = "0.24"', "", "prices.output_dollars_per_million: missing"),
        ('"0.06"', "0.06", "prices.input_dollars_per_million: Expected `str`, got `float`"),
        ('"0.24"', '"-1"', "prices.output_dollars_per_million: Expected `str` matching regex"),
        ('"0.24"', '"0.0000000001"', "prices.output_dollars_per_million: Expected `str` matching regex"),
        ('"0.24"', '"0.24", clip_dollars = "1"', "prices.clip_dollars: nothing to pay for"),
        ('"0.24"', '"0.24", realtime_factor = "3/2"', "prices.realtime_factor: nothing to pay for"),
        ("realtime = false", "realtime = true", "prices.realtime_factor: missing"),
        ("minimum_cents = 1", "minimum_cents = -1", "minimum_cents: Expected `int` >= 1"),
        ("minimum_cents = 1", "minimum_cent = 1", "minimum_cent: unknown key"),
        ("output_max_tokens = 100", "output_max_tokens = 101", "output_max_tokens: over context_tokens"),
        ("output_max_tokens = 100", "", "output_max_tokens: missing"),
        ('kind = "chat"', 'kind = "talk"', "kind: Invalid enum value 'talk'"),
        ('tokenizer = "hf"', 'tokenizer = "hf"\n' + IMAGE, "image: not among modalities"),
        ('tokenizer = "hf"', 'tokenizer = "hf"\nmodalities = ["image"]', "image: missing"),
        (
            'tokenizer = "hf"',
            f'tokenizer = "hf"\nmodalities = ["video"]\n{VIDEO}',
            "prices.minute_dollars: missing",
        ),
        (
            'tokenizer = "hf"',
            'tokenizer = "hf"\ndimensions = { min_width = 1, max_width = 2 }',
            "dimensions: only embedding models have a width",
        ),
        (
            'tokenizer = "hf"',
            'tokenizer = "hf"\nreasoning = { notice_tokens = 6, efforts = ["low"], default_effort = "top" }',
            "reasoning.default_effort: must be one of efforts",
        ),
        (
            'tokenizer = "hf"',
            'tokenizer = "bytes"',
            "tokenizer: bytes goes with the fake engine, and with no other",
        ),
        (
            "stall_seconds = 180",
            'stall_seconds = 180, args = ["--max-model-len=5"]',
            "engine.args: --max-model-len",
        ),
        ('kind = "vllm"', 'kind = "laya"', "engine.kind: laya serves decision models"),
        ('location = "a/b", ', "", "weights.location: stands for every source but none"),
        ('"bf16" }', '"bf16", extra = { a = 1 } }', "weights.extra: unknown key"),
        ("decode_tokens_per_second = 10, ", "", "throughput.decode_tokens_per_second: missing"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in CHAT
    faults = faults_of(tmp_path, CHAT.replace(old, new))

    assert any(each.startswith(f"models.toml: tiny.{fault}") for each in faults), faults


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    other = CHAT.replace("[tiny]", "[other]").replace("context_tokens = 100", "")
    faults = faults_of(tmp_path, CHAT.replace('"0.24"', "1").replace('"1"', "1") + other)

    assert {each.split(": ")[1] for each in faults} == {
        "tiny.prices.output_dollars_per_million",
        "tiny.weights.revision",
        "other.context_tokens",
    }


def test_two_models_on_one_queue_are_refused(tmp_path: Path) -> None:
    other = CHAT.replace("[tiny]", '[other]\nqueue = "tiny"')

    assert faults_of(tmp_path, CHAT + other) == [
        "models.toml: tiny.queue: another model is on queue 'tiny'",
        "models.toml: other.queue: another model is on queue 'tiny'",
    ]


def test_a_queue_cannot_take_the_name_of_a_quick_queue(tmp_path: Path) -> None:
    assert "belongs to the quick queues" in faults_of(tmp_path, CHAT.replace("[tiny]", '["tiny.quick"]'))[0]


def test_one_id_twice_is_refused(tmp_path: Path) -> None:
    assert faults_of(tmp_path, CHAT + CHAT)[0].startswith("models.toml: not TOML: ")


@pytest.mark.parametrize("model_id", ["UPPER", "a/b", "-a", "a", "a" * 65])
def test_an_id_that_cannot_name_a_queue_is_refused(tmp_path: Path, model_id: str) -> None:
    assert (
        f"models.toml: {model_id}: an id is"
        in faults_of(tmp_path, CHAT.replace("[tiny]", f'["{model_id}"]'))[0]
    )


def test_a_model_on_offer_must_stand_in_the_file(tmp_path: Path) -> None:
    assert faults_of(tmp_path, CHAT, offered=frozenset({"tiny", "ghost"})) == [
        "models.toml: 'ghost' is set in ANEX_MODELS_OFFERED and stands nowhere"
    ]


def test_an_empty_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    assert faults_of(tmp_path, "") == ["models.toml: holds no model"]
    assert faults_of(tmp_path, "tiny = 3") == ["models.toml: tiny: expected is a table"]
    with pytest.raises(CatalogInvalid, match="cannot be read"):
        load_catalog(tmp_path / "nothing.toml")
