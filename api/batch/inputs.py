"""``/batch/v1/inputs``: the files that jobs run over. Each route is one call of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.inputs.create import create_input
from anex.inputs.settle import get_input
from api.batch.input_schemas import CreatedInputSchema, InputRequestSchema, InputSchema
from api.blueprint import ApiBlueprint
from api.context import caller, services

if TYPE_CHECKING:
    from anex.inputs.model import CreatedInput, Input, InputRequest

inputs = ApiBlueprint("inputs", __name__, url_prefix="/batch/v1", description="Files that jobs run over.")


@inputs.endpoint(
    "POST",
    "/inputs",
    "createInput",
    body=InputRequestSchema,
    answer=CreatedInputSchema,
    errors=(400, 402, 403, 413, 421),
)
def create(asked: InputRequest) -> CreatedInput:
    """Get a form to upload an input file with, or have the file copied from a URL."""
    return create_input(services(), caller(), asked)


@inputs.endpoint("GET", "/inputs/<input_id>", "getInput", answer=InputSchema, errors=(404, 421))
def read(input_id: str) -> Input:
    """Check an input's status until it is ready."""
    return get_input(services(), caller(), input_id)
