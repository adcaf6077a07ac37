"""The command line that starts vLLM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anex.catalog import ContextLimits, MediaContext, ModelSpec
from config.catalog import load_catalog
from workers.engines.vllm import vllm_command

CATALOGS = Path(__file__).resolve().parents[2] / "config"
SOCKET = Path("/run/anex/engine.sock")
FILES = Path("/data/models/smollm2-135m/0.1.2")
PYTHON = Path("/opt/engine/bin/python")


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return load_catalog(CATALOGS / "models.local.toml").get("smollm2-135m")


def read_option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_serves_the_files_on_the_socket_under_the_catalog_id(spec: ModelSpec) -> None:
    argv, _ = vllm_command(spec, SOCKET, FILES, PYTHON)
    assert argv[:5] == [str(PYTHON), "-m", "vllm.entrypoints.cli.main", "serve", str(FILES)]
    assert read_option(argv, "--uds") == str(SOCKET)
    assert read_option(argv, "--served-model-name") == "smollm2-135m"


def test_the_engine_has_the_wider_context_of_rows_with_media(spec: ModelSpec) -> None:
    wide = MediaContext(frozenset({"image"}), ContextLimits(131072, 32768, 131072))
    argv, _ = vllm_command(replace(spec, media_context=wide), SOCKET, FILES, PYTHON)
    assert read_option(argv, "--max-model-len") == "131072"


def test_sequences_and_gpus_come_from_the_catalog(spec: ModelSpec) -> None:
    engine = replace(spec.engine, max_num_seqs=7, tensor_parallel=4)
    argv, _ = vllm_command(replace(spec, engine=engine), SOCKET, FILES, PYTHON)
    assert read_option(argv, "--max-num-seqs") == "7"
    assert read_option(argv, "--tensor-parallel-size") == "4"


def test_what_the_catalog_says_comes_last_and_wins(spec: ModelSpec) -> None:
    engine = replace(spec.engine, args=("--scheduling-policy=fcfs",), environment=(("HF_HUB_OFFLINE", "0"),))
    argv, environment = vllm_command(replace(spec, engine=engine), SOCKET, FILES, PYTHON)
    assert argv[-1] == "--scheduling-policy=fcfs"
    assert environment["HF_HUB_OFFLINE"] == "0"


def test_the_engine_reaches_no_network(spec: ModelSpec) -> None:
    argv, environment = vllm_command(spec, SOCKET, FILES, PYTHON)
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert read_option(argv, "--allowed-media-domains") == "none.invalid"
    assert "--host" not in argv
    assert "--port" not in argv
    assert environment["VLLM_RPC_BASE_PATH"] == "/run/anex"


@pytest.mark.parametrize("catalog", ["models.toml", "models.local.toml"])
def test_every_vllm_model_of_a_catalog_takes_priorities(catalog: str) -> None:
    served = [spec for spec in load_catalog(CATALOGS / catalog) if spec.engine.kind == "vllm"]
    assert served
    for spec in served:
        argv, _ = vllm_command(spec, SOCKET, FILES, PYTHON)
        assert read_option(argv, "--scheduling-policy") == "priority", spec.id
        assert not {arg for arg in spec.engine.args if arg.startswith("--scheduling-policy=fcfs")}, spec.id
