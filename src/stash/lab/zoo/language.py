"""Transformers for text, built from their published configurations with random weights.

Knows BERT for question answering and GPT-2, both by way of the optional ``transformers`` package.
Downloads nothing and knows no tokenizer: token files hold ids already.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import nn

from stash.base.compat import prepare_torchvision
from stash.base.errors import UserError

BERT_SIZES: dict[str, dict[str, Any]] = {
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
    "large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
}
"""Devlin et al. 2019, section 3; the vocabulary is the uncased one of 30522 pieces."""
GPT2_SIZES: dict[str, dict[str, Any]] = {"small": {"n_embd": 768, "n_layer": 12, "n_head": 12}}
"""Radford et al. 2019, table 2; 50257 byte pairs."""


def _need_transformers(what: str) -> None:
    if find_spec("transformers") is None:
        raise UserError(f"{what} needs the transformers package; run: pip install transformers")
    prepare_torchvision()  # transformers imports torchvision wherever that is installed.


def bert(size: str) -> nn.Module:
    """BERT with a span-prediction head, ``size`` base or large; raises UserError without transformers."""
    _need_transformers(f"bert_{size}_qa")
    from transformers import BertConfig, BertForQuestionAnswering

    shape = BERT_SIZES[size]
    config = BertConfig(vocab_size=30522, intermediate_size=4 * shape["hidden_size"], **shape)
    model: nn.Module = BertForQuestionAnswering(config)
    return model


def gpt2(size: str) -> nn.Module:
    """GPT-2 with a next-token head tied to its embedding; raises UserError without transformers."""
    _need_transformers(f"gpt2_{size}")
    from transformers import GPT2Config, GPT2LMHeadModel

    model: nn.Module = GPT2LMHeadModel(GPT2Config(use_cache=False, **GPT2_SIZES[size]))
    return model
