"""Turn one GGUF file of the llama architecture into the files that vLLM serves.

Runs in the engine's environment (``config.stack.model_files``), which has ``gguf``, ``safetensors`` and
``tokenizers``. A GGUF file holds everything in a layout of its own: quantised tensors under other names, the
rows of the query and key projections reordered, and the tokenizer as metadata. All of that is undone here:

- tensors are dequantised to float16 (a 4-bit weight is a float16 scale times a small integer plus a float16
  offset, so its 10-bit mantissa loses next to nothing where bfloat16's 7 bits would);
- names become those of ``LlamaForCausalLM`` in transformers;
- the rotary halves of each head, interleaved by llama.cpp's ``convert_hf_to_gguf.py``
  (``LlamaModel.permute``), are put back side by side;
- tokenizer and chat template become ``tokenizer.json`` and ``chat_template.jinja``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3
"""``tokenizer.ggml.token_type`` of tokens like ``<|im_start|>`` (llama.cpp: ``LLAMA_TOKEN_TYPE_CONTROL``)."""


class ModelFileUnsupported(Exception):
    """The file is of an architecture or tokenizer that this conversion does not know."""


def convert_gguf(source: Path, target: Path) -> None:
    """Write config, tokenizer, chat template and weights of ``source`` into the folder ``target``.

    Raises ``ModelFileUnsupported``.
    """
    from gguf import GGUFReader  # noqa: PLC0415 - only the engine's environment has it

    reader = GGUFReader(source)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    _require(metadata, "general.architecture", "llama")
    _require(metadata, "tokenizer.ggml.model", "gpt2")
    _require(metadata, "tokenizer.ggml.pre", "smollm")
    tensors = _read_tensors(reader, metadata)
    config = _make_config(metadata, tied="lm_head.weight" not in tensors)
    _write_json(target / "config.json", config)
    special = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(target / "generation_config.json", special)
    _write_tokenizer(metadata, target)
    _write_tensors(tensors, target / "model.safetensors")


def rename_tensor(name: str) -> str:
    """Return the transformers name of a llama.cpp tensor. Raises ``ModelFileUnsupported``."""
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    prefix, _, rest = name.partition(".")
    block, _, part = rest.partition(".")
    role, _, kind = part.partition(".")
    if prefix != "blk" or role not in _BLOCK_NAMES:
        raise ModelFileUnsupported(f"unknown tensor '{name}'")
    return f"model.layers.{block}.{_BLOCK_NAMES[role]}.{kind}"


def restore_rotary_order(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Undo llama.cpp's interleaving of a query or key projection.

    ``weight`` has shape ``(heads * head width, columns)``. Within a head, row 2i of the file is row i of the
    original and row 2i + 1 is row i + half the width.
    """
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def _read_tensors(reader: Any, metadata: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    from gguf import dequantize  # noqa: PLC0415 - only the engine's environment has it

    heads = {
        "attn_q": metadata["llama.attention.head_count"],
        "attn_k": metadata["llama.attention.head_count_kv"],
    }
    tensors = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type)
        role = tensor.name.split(".")[-2]
        if role in heads:
            weight = restore_rotary_order(weight, heads[role])
        tensors[rename_tensor(tensor.name)] = np.ascontiguousarray(weight, dtype=np.float16)
    return tensors


def _make_config(metadata: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "max_position_embeddings": metadata["llama.context_length"],
        "rms_norm_eps": round(metadata["llama.attention.layer_norm_rms_epsilon"], 10),
        "rope_theta": metadata["llama.rope.freq_base"],
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def _write_tokenizer(metadata: Mapping[str, Any], target: Path) -> None:
    """Rebuild the byte-level BPE that llama.cpp calls "smollm": digits one by one, then GPT-2's split."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - same

    tokens = metadata["tokenizer.ggml.tokens"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = metadata["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    tokenizer.save(str(target / "tokenizer.json"))
    _write_json(target / "tokenizer_config.json", _tokenizer_config(metadata))
    (target / "chat_template.jinja").write_text(metadata["tokenizer.chat_template"])


def _tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Name the generic class: a model's own would rebuild the splitting rules and lose the single digits."""
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
    }


def _write_tensors(tensors: dict[str, NDArray[Any]], file: Path) -> None:
    from safetensors.numpy import save_file  # noqa: PLC0415 - same

    # The format's own mark: without it transformers refuses the file.
    save_file(tensors, file, metadata={"format": "pt"})


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")


def _require(metadata: Mapping[str, Any], key: str, expected: str) -> None:
    if metadata.get(key) != expected:
        raise ModelFileUnsupported(f"{key} is '{metadata.get(key)}'; only '{expected}' can be converted")
