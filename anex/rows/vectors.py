"""Embedding requests to an engine, and the lines of a result made of its vectors.

Vectors travel as float32 in base64 and become the shortest decimals that read back as the same float32: 52 KB a row of 4,096
dimensions where Python's floats take 92.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import orjson

from anex.rows.embed import URL
from anex.rows.media_requests import encode_long
from anex.rows.result import answer_row
from anex.services import EngineRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from anex.catalog import ModelSpec
    from anex.rows.result import RowKey, RowOutcome
    from anex.usage import Usage

_encode = msgspec.json.Encoder(enc_hook=encode_long).encode


def vector_width(spec: ModelSpec, row: int | None, job: int | None) -> int | None:
    """Return the width that an engine is asked for: the row's own, else the job's; None for the model's native one.

    An engine refuses any width, the native one too, for a model whose vectors are not made to be cut.
    """
    wanted = row if row is not None else job
    native = None if spec.dimensions is None else spec.dimensions.max_width
    return None if wanted == native else wanted


def texts_request(spec: ModelSpec, texts: Sequence[str], width: int | None, priority: int) -> EngineRequest:
    """Return the request for texts, which reach the model as they are."""
    return EngineRequest(URL, _encode(_body(spec, {"input": list(texts)}, width, priority)), rows=len(texts))


def parts_request(
    spec: ModelSpec,
    parts: Sequence[dict[str, Any]],
    width: int | None,
    priority: int,
    options: Mapping[str, Any],
) -> EngineRequest:
    """Return the request for content parts: one user's message, which the engine renders through the model's chat template."""
    given = {"messages": [{"role": "user", "content": list(parts)}], **options}
    return EngineRequest(URL, _encode(_body(spec, given, width, priority)))


def _body(spec: ModelSpec, given: dict[str, Any], width: int | None, priority: int) -> dict[str, Any]:
    body = {"model": spec.id, **given, "encoding_format": "base64", "priority": priority}
    return body if width is None else {**body, "dimensions": width}


def read_vectors(
    answer: bytes, model_id: str, keys: Sequence[RowKey], usages: Sequence[Usage]
) -> list[RowOutcome] | None:
    """Make each row's line of an engine's answer; ``usages`` are what each row was counted as.

    None where the answer is not one vector for each row, or bills another number of tokens than the texts count together. A row
    alone is billed what the engine counted.
    """
    try:
        parsed = orjson.loads(answer)
        vectors = [_read_vector(entry, place) for place, entry in enumerate(parsed["data"])]
        billed = parsed["usage"]["prompt_tokens"]
        request_id = parsed.get("id")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if len(keys) == 1 and isinstance(billed, int):
        usages = [_bill(usages[0], billed)]
    if len(vectors) != len(keys) or billed != sum(usage.input_tokens for usage in usages):
        return None
    return [
        _answer(key, request_id, model_id, vector, usage)
        for key, vector, usage in zip(keys, vectors, usages, strict=True)
    ]


def _bill(counted: Usage, billed: int) -> Usage:
    """Return the usage of a row alone, by the engine's count."""
    return replace(counted, input_tokens=billed, media_tokens=billed if counted.media_tokens else 0)


def _read_vector(entry: dict[str, Any], place: int) -> NDArray[np.float32]:
    """Return an entry's vector. Raises ``ValueError`` for one that is out of its place or holds no finite numbers."""
    if entry["index"] != place:
        raise ValueError("the vectors are not in the order of the texts")
    try:
        vector = np.frombuffer(base64.b64decode(entry["embedding"], validate=True), np.dtype("<f4"))
    except binascii.Error as error:
        raise ValueError("the vector is not base64") from error
    if len(vector) == 0 or not np.isfinite(vector).all():
        raise ValueError("the vector holds something else than numbers")
    return vector


def _answer(
    key: RowKey, request_id: object, model_id: str, vector: NDArray[np.float32], usage: Usage
) -> RowOutcome:
    numbers = msgspec.Raw(orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY))
    body = {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": numbers}],
        "model": model_id,
        "usage": {"prompt_tokens": usage.input_tokens, "total_tokens": usage.input_tokens},
    }
    named = request_id if isinstance(request_id, str) and request_id else key.result_id
    return answer_row(key, named, body, usage)
