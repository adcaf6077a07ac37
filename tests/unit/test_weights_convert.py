"""Undoing llama.cpp's layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.stack.gguf_convert import ModelFileUnsupported, rename_tensor, restore_rotary_order


@given(heads=st.integers(1, 6), half=st.integers(1, 8), columns=st.integers(1, 5))
def test_rotary_halves_come_back_side_by_side(heads: int, half: int, columns: int) -> None:
    rows = heads * 2 * half
    original = np.arange(rows * columns).reshape(rows, columns)
    # Row i of the first half and row i of the second become neighbours: what convert_hf_to_gguf.py does.
    order = [
        head * 2 * half + part * half + i for head in range(heads) for i in range(half) for part in (0, 1)
    ]
    assert (restore_rotary_order(original[order], heads) == original).all()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
        ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight"),
        ("blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
    ],
)
def test_tensors_get_the_names_of_transformers(theirs: str, ours: str) -> None:
    assert rename_tensor(theirs) == ours


@pytest.mark.parametrize("name", ["blk.0.ssm_in.weight", "rope_freqs.weight", "cls.weight"])
def test_an_unknown_tensor_is_never_dropped_silently(name: str) -> None:
    with pytest.raises(ModelFileUnsupported, match=name):
        rename_tensor(name)
