"""``/batch/v1/inputs``: the files that jobs run over. Each route is one call of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.inputs.create import create_input
from anex.inputs.settle import get_input
from api.batch.input_schemas import InputRequestSchema, InputSchema, UploadSchema
from api.blueprint import ApiBlueprint
from api.context import caller, services

if TYPE_CHECKING:
    from anex.inputs.model import Input, InputRequest, Upload

inputs = ApiBlueprint("inputs", __name__, url_prefix="/batch/v1", description="Files that jobs run over.")


@inputs.endpoint(
    "POST",
    "/inputs",
    "createInput",
    body=InputRequestSchema,
    answer=UploadSchema,
    errors=(400, 402, 403, 413, 421, 501),
)
def create(asked: InputRequest) -> Upload:
    """Get a form to upload an input file with."""
    return create_input(services(), caller(), asked)


@inputs.endpoint("GET", "/inputs/<input_id>", "getInput", answer=InputSchema, errors=(404, 421))
def read(input_id: str) -> Input:
    """Check an input's status until it is ready."""
    return get_input(services(), caller(), input_id)
