"""A model's tokenizer files: which ones they are, and their copies on the local disk.

They lie in the region's bucket under the model's revision, put there by ``anex models pull``. A local copy is
made whole or not at all: it is written beside its place and renamed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anex.errors import ModelFilesMissing
from anex.object_keys import model_prefix

if TYPE_CHECKING:
    from anex.catalog import ModelSpec
    from anex.objects import ObjectStore

TOKENIZER_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.json",
    "chat_template.jinja",
    "tokenizer.json",
)
"""What a pull writes, in this order, as far as the model has it. The last one is there when all are."""

SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""Names that templates may use; ``PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES`` in transformers."""


def fetch_tokenizer_files(
    objects: ObjectStore, cache_dir: Path, spec: ModelSpec, checkpoint: str | None = None
) -> Path:
    """Return the folder with the local copies of a model's tokenizer files, copied on the first call.

    A model of several checkpoints has a tokenizer for each. Raises ``ModelFilesMissing`` and ``StorageUnavailable``.
    """
    folder = cache_dir / spec.id / spec.revision / (checkpoint or "")
    if folder.is_dir():
        return folder
    prefix = tokenizer_prefix(spec, checkpoint)
    if objects.head(prefix + TOKENIZER_FILES[-1]) is None:
        raise ModelFilesMissing(
            f"the tokenizer files of model '{spec.id}', revision {spec.revision}, are not in the bucket: "
            f"run `anex models pull {spec.id}`"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _copy(objects, prefix, partial)
        _publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def tokenizer_prefix(spec: ModelSpec, checkpoint: str | None = None) -> str:
    """Return the prefix in the bucket of the tokenizer files of a model, or of one of its checkpoints."""
    prefix = model_prefix(spec.id, spec.revision)
    return prefix if checkpoint is None else f"{prefix}{checkpoint}/"


def read_chat_template(folder: Path) -> str | None:
    """Return the model's chat template, by the precedence of transformers, or None where it has none."""
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        return jinja.read_text("utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = _read_json(folder / name).get("chat_template")
        if isinstance(template, list):  # several, by name
            template = next((each["template"] for each in template if each["name"] == "default"), None)
        if isinstance(template, str):
            return template
    return None


def read_special_tokens(folder: Path) -> dict[str, str]:
    """Return the texts of the special tokens that the model names, by ``SPECIAL_TOKENS``."""
    named = _read_json(folder / "special_tokens_map.json") | _read_json(folder / "tokenizer_config.json")
    texts = {name: named[name] for name in SPECIAL_TOKENS if named.get(name) is not None}
    return {name: text["content"] if isinstance(text, dict) else text for name, text in texts.items()}


def _copy(objects: ObjectStore, prefix: str, target: Path) -> None:
    for name in TOKENIZER_FILES:
        head = objects.head(prefix + name)
        if head is not None:
            (target / name).write_bytes(objects.read_range(prefix + name, 0, head.size_bytes, head.etag))


def _publish(partial: Path, folder: Path) -> None:
    """Move a whole copy into place, unless another process was faster: both hold the same revision."""
    try:
        partial.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
