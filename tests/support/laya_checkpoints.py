"""Make tiny decision checkpoints: two with tokenizers of their own and random weights, under a megabyte each.

    <engine python> -m tests.support.laya_checkpoints FOLDER

Runs in the engine's environment. The weights come of a seed, so that answers can be compared; they mean nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from laya.common import DecisionModel
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModel, ModernBertConfig

VOCABULARY = 400
SEED = 7
TEXTS = (
    "The customer was billed twice for March and wants the money back today; please refund the invoice.",
    "Wir haben die Rechnung zweimal bezahlt und möchten unser Geld zurück, bitte noch heute.",
    "Der Kunde fragt, ob die Lieferung pünktlich kommt. Le client attend une réponse pour demain matin.",
    "choice question: Which team should handle this? noul question: Is it urgent? score question: level 0: calm",
    "false: no, the statement does not hold true: yes, the statement holds",
    "Клиент просит вернуть деньги. 客户要求今天退款。 العميل يريد استرداد المال",
)

WORDPIECES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
BYTES = {"pad": "<pad>", "unk": "<unk>", "cls": "<bos>", "sep": "<eos>", "mask": "<mask>"}


def make_checkpoints(folder: Path) -> None:
    """Write ``english`` and ``multilingual`` into ``folder``."""
    _make_checkpoint(folder / "english", _make_word_tokenizer(), WORDPIECES, 512)
    _make_checkpoint(folder / "multilingual", _make_byte_tokenizer(), BYTES, 1024)


def _make_word_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token=WORDPIECES["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=list(WORDPIECES.values()))
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def _make_byte_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(BYTES.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def _make_checkpoint(folder: Path, tokenizer: Tokenizer, special: dict[str, str], max_len: int) -> None:
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "encoder").mkdir()
    ids = {f"{name}_token_id": tokenizer.token_to_id(text) for name, text in special.items() if name != "unk"}
    config = ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=1024,
        bos_token_id=ids["cls_token_id"],
        eos_token_id=ids["sep_token_id"],
        pad_token_id=ids["pad_token_id"],
        cls_token_id=ids["cls_token_id"],
        sep_token_id=ids["sep_token_id"],
    )
    torch.manual_seed(SEED)
    model = DecisionModel(AutoModel.from_config(config), 2, 2)
    save_file(model.state_dict(), folder / "model.safetensors")
    config.save_pretrained(folder / "encoder")
    tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
    named = {f"{name}_token": text for name, text in special.items()}
    _write(
        folder / "tokenizer" / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", **named},
    )
    described = {"encoder": "", "head_layers": 2, "act_costs": {"act": 1.0}, "max_len": max_len}
    _write(folder / "rl_agent_config.json", described)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    make_checkpoints(Path(sys.argv[1]))
