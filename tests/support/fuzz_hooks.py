"""What Schemathesis is told beside its settings; its command loads this module by name (``schemathesis.toml``).

Each request is also noted in a file of the folder it runs in, so that the test sees what the fuzz has reached.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests
import schemathesis
from schemathesis.openapi.checks import AuthScenario, IgnoredAuth, MissingHeaderNotRejected

from tests.support.contract import LINES

if TYPE_CHECKING:
    from schemathesis import Case, CheckContext, HookContext, Response
    from schemathesis.core.failures import Failure

ANSWERS = "answers"
"""File of the folder: a line an answer, the operation and the status."""


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: dict[str, Any]) -> None:  # noqa: ARG001 - the hook's signature
    """Drop each operation's ``default`` answer: under it every status would be a documented one."""
    for path in raw_schema["paths"].values():
        for method, operation in path.items():
            if method != "parameters":
                operation["responses"].pop("default")


@schemathesis.hook
def map_case(context: HookContext, case: Case[Any]) -> Case[Any]:  # noqa: ARG001 - the hook's signature
    """Settle what no schema says of a submit that should pass: one name of its input, one cap, no width of vectors.

    Left alone, nine in ten would be refused for that, and hardly a job would begin. Bodies that are wrong on purpose stay so.
    """
    is_meant_well = case.meta is not None and case.meta.generation.mode.is_positive
    if is_meant_well and _name(case) == "submitJob" and isinstance(case.body, dict):
        spoiling = {"max_tokens", "dimensions", "data_residency", "video_fps", "response_format"}
        if case.body.get("input_id") is not None:
            spoiling.add("input_s3_uri")
        case.body = {name: value for name, value in case.body.items() if name not in spoiling}
    return case


@schemathesis.hook
def after_call(context: HookContext, case: Case[Any], response: Response) -> None:  # noqa: ARG001 - the hook's signature
    """Note the answer; send a file to an upload form, as a client does: without one, no job would ever be submitted."""
    if case.method.upper() != case.operation.method.upper():
        return  # a method that the operation hasn't
    with Path(ANSWERS).open("a", encoding="utf-8") as file:
        file.write(f"{_name(case)} {response.status_code}\n")
    if _name(case) == "createInput" and response.status_code == 200:
        form = json.loads(response.content)
        if form["upload_url"] is not None:
            sent = requests.post(form["upload_url"], data=form["fields"], files={"file": LINES}, timeout=30)
            sent.raise_for_status()


def _name(case: Case[Any]) -> str:
    name: str = case.operation.definition.raw["operationId"]
    return name


@schemathesis.hook
def filter_failure(
    context: HookContext,  # noqa: ARG001 - the hook's signature
    failure: Failure,
    case: Case[Any],  # noqa: ARG001
    response: Response,  # noqa: ARG001
) -> bool:
    """Keep all but two: the contract answers 422 without an Authorization header, where the library knows 401 alone."""
    if isinstance(failure, MissingHeaderNotRejected):
        return (failure.header_name, failure.status_code) != ("Authorization", 422)
    if isinstance(failure, IgnoredAuth) and failure.scenario is AuthScenario.NO_AUTH:
        return "got `422 " not in failure.message
    return True


@schemathesis.check
def errors_have_one_shape(ctx: CheckContext, response: Response, case: Case[Any]) -> None:  # noqa: ARG001 - the check's signature
    """Hold refusals to what the document says in words: one sentence twice, ``errors`` with 422 alone, an address with 421."""
    if response.status_code < 400 or case.method == "HEAD":
        return
    body = json.loads(response.content)
    assert body["detail"] == body["error"]["message"]
    assert ("errors" in body) == (response.status_code == 422)
    assert ("residency" in body) == ("api" in body) == (response.status_code == 421)
