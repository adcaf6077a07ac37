"""Put a model's tokenizer files where planners read them: from the model's folder on this machine into the region's bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.tokenizer_files import TOKENIZER_FILES, tokenizer_prefix
from config.stack.weights import ModelFilesUnavailable, prepare_model_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from anex.catalog import Catalog, ModelSpec
    from anex.objects import ObjectStore
    from config.settings import Settings


def pull_model(
    spec: ModelSpec, objects: ObjectStore, settings: Settings, report: Callable[[str], None]
) -> list[str]:
    """Make the model's files unless they stand here, and store those of its tokenizer; return the keys written.

    A model that counts by bytes has none, a decision model one for each checkpoint. Raises ``ModelFilesUnavailable`` with the fix,
    and ``StorageUnavailable``.
    """
    if spec.tokenizer == "bytes":
        return []
    folder = prepare_model_files(spec, settings.data_dir, settings.engine_python, report)
    if not spec.checkpoints:
        return store_tokenizer_files(spec, objects, folder)
    stored = [
        store_tokenizer_files(spec, objects, folder / each.name / "tokenizer", each.name)
        for each in spec.checkpoints
    ]
    return [key for keys in stored for key in keys]


def store_tokenizer_files(
    spec: ModelSpec, objects: ObjectStore, folder: Path, checkpoint: str | None = None
) -> list[str]:
    """Store the tokenizer files of a model, or of one of its checkpoints, that a folder holds; return the keys written.

    Repeating it is harmless: one revision has one content. The order matters, see ``TOKENIZER_FILES``.
    """
    if not (folder / TOKENIZER_FILES[-1]).is_file():
        raise ModelFilesUnavailable(
            f"{folder} holds no {TOKENIZER_FILES[-1]}: add the model's fast tokenizer to its weights, "
            f"then run `anex models pull {spec.id}`"
        )
    found = [name for name in TOKENIZER_FILES if (folder / name).is_file()]
    keys = [tokenizer_prefix(spec, checkpoint) + name for name in found]
    for key, name in zip(keys, found, strict=True):
        objects.put(key, (folder / name).read_bytes())
    return keys


def pull_packaged_models(
    settings: Settings, objects: ObjectStore, catalog: Catalog, say: Callable[[str], None]
) -> None:
    """Pull the models whose weights come inside packages or lie in a folder: nothing is fetched for them.

    Where that can't be done the stack starts all the same, and says so: jobs for the model then wait.
    """
    for spec in catalog:
        if spec.weights.source not in ("package", "folder"):
            continue
        last = spec.checkpoints[-1].name if spec.checkpoints else None
        if objects.head(tokenizer_prefix(spec, last) + TOKENIZER_FILES[-1]) is not None:
            continue
        say(f"{'models':10} preparing {spec.id}")
        try:
            pull_model(spec, objects, settings, lambda line: say(f"{'models':10} {line}"))
        except ModelFilesUnavailable as unavailable:
            say(f"{'models':10} {spec.id} can't run here yet: {unavailable.message}")
