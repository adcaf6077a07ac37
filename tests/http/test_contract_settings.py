"""``POST /jobs``: the range of every setting, and which model takes which, judged before an input is looked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anex.catalog import make_catalog
from tests.support.contract import UNKNOWN_INPUT, Promise, expect, keep, promised
from tests.support.spine import MODEL

if TYPE_CHECKING:
    from tests.support.contract import Check
    from tests.support.contract_bench import Bench

SUBMIT, POLL, ERRORS = "REF: POST /jobs", "REF: GET /jobs/{id}", "REF: Errors"
EMBEDDING, DECISION = "REF: Embedding jobs", "REF: Decision jobs"
EFFORTS, REASONER, OMNI, PLAIN = "qwen3.8-27b", "qwen3-14b", "nemotron-3-nano-omni-30b", "gemma4-12b"
TEXT_EMBED, WIDE_EMBED, SMALL_EMBED = "qwen3-embedding-8b", "qwen3-vl-embedding-8b", "qwen3-vl-embedding-2b"
DECIDE = "laya"

GENERATION_SETTINGS: dict[str, list[Any]] = {
    "max_output_tokens": [5],
    "max_tokens": [5],
    "reasoning": [True, False],
    "reasoning_budget": [5, 0],
    "reasoning_effort": ["low"],
    "response_format": [{"type": "json_object"}],
    "video_fps": [1],
}

OUT_OF_RANGE: dict[str, list[Any]] = {
    "max_output_tokens": [0, -1, 32_769, 10**30, 5.0, 5.5, "5", True, [5], {}],
    "max_tokens": [0, -1, 32_769, 10**30, 5.0, "5", False],
    "reasoning_budget": [-1, 32_769, 10**30, 5.0, "5", True],
    "video_fps": [0, -1, 0.0, "2", True, [2]],
    "reasoning": [1, 0, "true", []],
    "reasoning_effort": [3, "", True, []],
    "response_format": ["json_object", [], 5, True],
    "dimensions": [0, -1, 64.0, "64", True],
    "data_residency": ["mars", "EU", "", 1, True],
    "model": [5, "", True, [], "x" * 300],
    "input_id": [5, True, []],
    "input_s3_uri": [5, True],
}

FORMATS: list[Any] = [
    {},
    {"type": "xml"},
    {"type": 5},
    {"type": "json_schema"},
    {"type": "json_schema", "json_schema": {}},
    {"type": "json_schema", "json_schema": {"schema": {}}},
    {"type": "json_schema", "json_schema": {"name": "", "schema": {}}},
    {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}},
    {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": "yes"}},
    {"type": "json_object", "colour": "blue"},
]


def post(bench: Bench, **body: Any) -> Any:
    return bench.anyone.call("POST", "/jobs", {"input_id": UNKNOWN_INPUT, **body})


def takes(model: str, **settings: Any) -> Check:
    """Check that nothing is wrong but the input."""

    def check(bench: Bench) -> None:
        response = post(bench, model=model, **settings)
        assert response.status_code == 404, response.get_json()

    return check


def refuses(model: str, field: str, message: str | None = None, **settings: Any) -> Check:
    """Check that a setting is refused by its name, and that no job comes of it."""

    def check(bench: Bench) -> None:
        body = expect(post(bench, model=model, **settings), 422)
        assert list(body["errors"]) == [field]
        assert message in (None, body["detail"])
        assert bench.count("jobs", bench.anyone) == 0

    return check


def refuses_value(field: str, value: Any) -> Check:
    """Check a value that no model takes; the request is whole otherwise."""
    whole = {"model": MODEL} if field != "input_s3_uri" else {"model": MODEL, "input_id": None}
    return refuses(**{**whole, field: value}, field=field) if field != "model" else refuses(value, "model")


def refuses_text(text: str) -> Check:
    """Check what no JSON text may hold."""

    def check(bench: Bench) -> None:
        raw = f'{{"model": "{MODEL}", "input_id": "{UNKNOWN_INPUT}", {text}}}'
        headers = {"Authorization": f"Bearer {bench.anyone.key}"}
        response = bench.app.test_client().post("/batch/v1/jobs", data=raw, headers=headers)
        expect(response, 422, "invalid_request_shape")

    return check


def refuses_format(value: Any) -> Check:
    def check(bench: Bench) -> None:
        expect(post(bench, model=PLAIN, response_format=value), 400, "invalid_request")

    return check


def refuses_unknown_model(model: str) -> Check:
    def check(bench: Bench) -> None:
        tenant = bench.tenant()
        input_id = tenant.upload(b'{"a": 1}\n')
        response = tenant.call("POST", "/jobs", {"input_id": input_id, "model": model})
        assert model in expect(response, 422, "unknown_model")["detail"]
        assert bench.count("jobs", tenant) == 0

    return check


def names_the_model_field(bench: Bench) -> None:
    """Expect of an unknown id what all faults of the shape have: the reference counts it among them."""
    assert list(post(bench, model="gpt-9").get_json().get("errors", {})) == ["model"]


def refuses_model_not_on_offer(bench: Bench) -> None:
    offered = make_catalog(bench.spine.api.catalog, {MODEL})
    tenant = replace(bench.anyone, app=bench.serve(catalog=offered))
    answers = [
        expect(
            tenant.call("POST", "/jobs", {"input_id": UNKNOWN_INPUT, "model": model}), 422, "unknown_model"
        )
        for model in (PLAIN, "gpt-9")
    ]
    assert answers[0]["detail"].replace(PLAIN, "gpt-9") == answers[1]["detail"]


def every(source: str, sentence: str, checks: dict[str, Check]) -> list[Promise]:
    return [Promise(source, sentence, check, case) for case, check in checks.items()]


RANGES = [
    *every(
        SUBMIT,
        "Omit it and the cap is estimated",
        {f"{cap}": takes(PLAIN, max_output_tokens=cap) for cap in (1, 32_768)},
    ),
    *every(
        SUBMIT,
        "or 0 for no cap",
        {f"{cap}": takes(REASONER, reasoning_budget=cap) for cap in (0, 1, 32_768)},
    ),
    *every(
        SUBMIT,
        "Optional number above 0",
        {f"{fps}": takes(EFFORTS, video_fps=fps) for fps in (0.001, 1, 2.5, 20)},
    ),
    *(
        Promise(
            ERRORS,
            "a missing or wrongly typed body field",
            refuses_value(field, value),
            f"{field} {value!r:.20}",
        )
        for field, values in OUT_OF_RANGE.items()
        for value in values
    ),
    *every(
        ERRORS,
        "does not match the endpoint's shape",
        {
            text: refuses_text(text)
            for text in (
                '"video_fps": NaN',
                '"video_fps": Infinity',
                '"video_fps": 1e999',
                '"max_tokens": 1e999',
            )
        },
    ),
    Promise(ERRORS, "a missing or wrongly typed body field", refuses(None, "model"), "no model"),  # type: ignore[arg-type]
    Promise(
        SUBMIT,
        "Give exactly one of input_id / input_s3_uri",
        refuses(MODEL, "input_id", input_s3_uri="s3://a/b"),
        "both",
    ),
    Promise(
        SUBMIT,
        "Give exactly one of input_id / input_s3_uri",
        refuses(MODEL, "input_id", input_id=None),
        "none",
    ),
    Promise(SUBMIT, "The former name of max_output_tokens", takes(PLAIN, max_tokens=5)),
    Promise(
        SUBMIT,
        "The former name of max_output_tokens",
        takes(PLAIN, max_tokens=5, max_output_tokens=5),
        "both, equal",
    ),
    Promise(
        "Ruling 1",
        "given and different: 422",
        refuses(PLAIN, "max_tokens", max_tokens=5, max_output_tokens=6),
    ),
    *every(
        ERRORS, "a malformed response_format", {f"{value}"[:60]: refuses_format(value) for value in FORMATS}
    ),
    *every(
        SUBMIT,
        "An unknown id is rejected before anything is created",
        {model: refuses_unknown_model(model) for model in ("gpt-9", "GEMMA4-12B")},
    ),
    Promise(ERRORS, "or an unknown model id", names_the_model_field),
    Promise("Ruling 2", "is 422 like an unknown one", refuses_model_not_on_offer),
]

REASONING = [
    Promise(
        SUBMIT,
        "true on a model that produces no reasoning trace",
        refuses(PLAIN, "reasoning", reasoning=True),
    ),
    *every(
        SUBMIT,
        "false stays valid on every generation model",
        {model: takes(model, reasoning=False) for model in (PLAIN, REASONER, OMNI, EFFORTS)},
    ),
    *every(
        SUBMIT,
        'marked "text (reasoning)"',
        {model: takes(model, reasoning=True) for model in (REASONER, OMNI, EFFORTS)},
    ),
    *every(
        SUBMIT,
        "0 is accepted on any generation model",
        {
            **{model: takes(model, reasoning_budget=0) for model in (PLAIN, REASONER, OMNI, EFFORTS)},
            "reasoning off": takes(REASONER, reasoning_budget=0, reasoning=False),
            "a cap of 1": takes(REASONER, reasoning_budget=0, max_output_tokens=1),
        },
    ),
    Promise(
        SUBMIT,
        "a value of 1 or higher is only for the models",
        refuses(PLAIN, "reasoning_budget", reasoning_budget=1),
    ),
    Promise(
        SUBMIT,
        "a value of 1 or higher with reasoning: false is refused",
        refuses(REASONER, "reasoning_budget", reasoning_budget=1, reasoning=False),
    ),
    *every(
        SUBMIT,
        "at least 64 below an explicit max_output_tokens",
        {
            "64 below": takes(REASONER, reasoning_budget=100, max_output_tokens=164),
            "63 below": refuses(REASONER, "reasoning_budget", reasoning_budget=100, max_output_tokens=163),
            "63 below, former name": refuses(
                REASONER, "reasoning_budget", reasoning_budget=100, max_tokens=163
            ),
            "no cap": takes(REASONER, reasoning_budget=32_768),
        },
    ),
    *every(
        SUBMIT,
        "qwen3.8-27b takes low, medium or xhigh",
        {level: takes(EFFORTS, reasoning_effort=level) for level in ("low", "medium", "xhigh")},
    ),
    *every(
        SUBMIT,
        "Refused (422) on a model without levels",
        {
            model: refuses(model, "reasoning_effort", reasoning_effort="low")
            for model in (PLAIN, REASONER, OMNI)
        },
    ),
    *every(
        SUBMIT,
        "they are case-sensitive",
        {
            level: refuses(EFFORTS, "reasoning_effort", reasoning_effort=level)
            for level in ("Low", "high", "low ")
        },
    ),
    Promise(
        SUBMIT,
        "and together with reasoning: false",
        refuses(EFFORTS, "reasoning_effort", reasoning_effort="low", reasoning=False),
    ),
    Promise(
        SUBMIT,
        "It works together with reasoning_budget",
        takes(EFFORTS, reasoning_effort="low", reasoning_budget=9),
    ),
]

VIDEO = [
    Promise(
        ERRORS,
        "video_fps 25 is above the 20 fps ceiling of qwen3.8-27b",
        refuses(
            EFFORTS, "video_fps", "video_fps 25 is above the 20 fps ceiling of qwen3.8-27b", video_fps=25
        ),
    ),
    Promise(
        SUBMIT, "A rate above the model's ceiling", refuses(EFFORTS, "video_fps", video_fps=20.5), "by a half"
    ),
    Promise(SUBMIT, "A rate above the model's ceiling", refuses(OMNI, "video_fps", video_fps=21), OMNI),
    Promise(SUBMIT, "defaults to 2 and takes up to 20", takes(OMNI, video_fps=20)),
    Promise(
        ERRORS,
        "model 'gemma4-12b' does not support video_fps",
        refuses(PLAIN, "video_fps", "model 'gemma4-12b' does not support video_fps", video_fps=1),
    ),
    Promise(SUBMIT, "any rate on a model that takes none", refuses(REASONER, "video_fps", video_fps=1)),
]

KINDS = [
    *(
        Promise(source, sentence, refuses(model, named, **{field: value}), f"{model} {field} {value}")
        for source, sentence, models in (
            (EMBEDDING, "are all rejected with 422 on an embedding model", (TEXT_EMBED, SMALL_EMBED)),
            (DECISION, "are rejected with 422 on a decision model", (DECIDE,)),
        )
        for model in models
        for field, values in GENERATION_SETTINGS.items()
        for named in ("max_output_tokens" if field == "max_tokens" else field,)
        for value in values
    ),
    *every(
        EMBEDDING,
        "dimensions is rejected with 422 on a chat-completions model",
        {model: refuses(model, "dimensions", dimensions=64) for model in (PLAIN, REASONER, OMNI, EFFORTS)},
    ),
    Promise(
        DECISION, "and so is the embedding models' dimensions", refuses(DECIDE, "dimensions", dimensions=64)
    ),
    *(
        Promise("Ruling 4", "The floor is the model's own", check, f"{model} {width}")
        for model, least, most in ((TEXT_EMBED, 32, 4096), (WIDE_EMBED, 64, 4096), (SMALL_EMBED, 64, 2048))
        for width, check in (
            (least, takes(model, dimensions=least)),
            (most, takes(model, dimensions=most)),
            (least - 1, refuses(model, "dimensions", dimensions=least - 1)),
            (most + 1, refuses(model, "dimensions", dimensions=most + 1)),
        )
    ),
    *every(
        SUBMIT, "Required. A model id from the allowlist", {m: takes(m) for m in (PLAIN, TEXT_EMBED, DECIDE)}
    ),
]


@promised(RANGES, REASONING, VIDEO, KINDS)
def test_a_setting_is_judged_before_the_input(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
