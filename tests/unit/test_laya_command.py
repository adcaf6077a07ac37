"""The command line of the laya engine: what the catalog says, and a GPU asked for where the unit has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.catalog import load_catalog
from workers.engines.laya_command import laya_command

CATALOG = load_catalog(Path(__file__).parents[2] / "config/models.toml")
PLACES = (Path("/run/engine.sock"), Path("/data/laya"), Path("/engine/python"))


@pytest.mark.parametrize(("on_gpu", "device"), [(True, "cuda"), (False, "cpu")])
def test_each_checkpoint_is_named_with_its_context_and_folder(on_gpu: bool, device: str) -> None:
    argv, environment = laya_command(CATALOG.get("laya"), *PLACES, on_gpu=on_gpu)
    assert argv[:3] == ["/engine/python", "-m", "workers.engines.laya"]
    assert argv[3:] == [
        *("--socket", "/run/engine.sock", "--model", "laya", "--device", device),
        *("--max-num-seqs", "64", "--option-budget", "192"),
        *("--checkpoint", "english:512:/data/laya/english"),
        *("--checkpoint", "multilingual:1024:/data/laya/multilingual"),
    ]
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_only_decision_models_are_served() -> None:
    with pytest.raises(TypeError, match="no decision model"):
        laya_command(CATALOG.get("qwen3-14b"), *PLACES, on_gpu=True)
