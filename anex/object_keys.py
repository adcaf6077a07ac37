"""Where things lie in a region's bucket.

Prefixes end with a slash: what is deleted by one cannot hit a neighbour. The key of a part, a checkpoint or a
result is fresh for each attempt (fence and random part): a worker that lost its lease writes beside the winner,
never over it.
"""

from __future__ import annotations

import secrets


def input_key(org_id: str, input_id: str) -> str:
    """Key of an uploaded or copied input."""
    return f"inputs/{org_id}/{input_id}.jsonl"


def job_prefix(org_id: str, job_id: str) -> str:
    """Prefix of everything that a job writes."""
    return f"jobs/{org_id}/{job_id}/"


def new_result_key(org_id: str, job_id: str, fence: int) -> str:
    """Fresh key for a job's result file, written under ``fence``."""
    return f"{job_prefix(org_id, job_id)}result/{fence}-{secrets.token_hex(8)}.jsonl"


def new_part_key(org_id: str, job_id: str, chunk_index: int, fence: int) -> str:
    """Fresh key for the part of a chunk, written under ``fence``."""
    return f"{job_prefix(org_id, job_id)}parts/{chunk_index}/{fence}-{secrets.token_hex(8)}"


def new_checkpoint_key(org_id: str, job_id: str, chunk_index: int, fence: int) -> str:
    """Fresh key for a checkpoint of a chunk, written under ``fence``."""
    return f"{job_prefix(org_id, job_id)}checkpoints/{chunk_index}/{fence}-{secrets.token_hex(8)}"


def model_prefix(model_id: str, revision: str) -> str:
    """Prefix of a model's files (tokenizer, chat template) at one revision."""
    return f"models/{model_id}/{revision}/"
