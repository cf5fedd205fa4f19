"""Transformers: a narrow one learns, and without the package one is told what to install."""

from __future__ import annotations

import math
import sys

import pytest
from torch.utils.data import default_collate

from stash.core.errors import UserError
from stash.lab.zoo import feed, models
from stash.lab.zoo.feed import synthetic_feed
from stash.lab.zoo.registry import workload


@pytest.mark.parametrize("name", ["bert_base_qa", "gpt2_small"])
def test_a_narrow_transformer_learns_from_a_tiny_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    monkeypatch.setitem(models.BERT_SIZES, "base", bert)
    monkeypatch.setitem(models.GPT2_SIZES, "small", {"n_embd": 32, "n_layer": 2, "n_head": 2})
    item = workload(name)
    model = item.build().train()
    loss = getattr(feed, item.loss)(model, default_collate(synthetic_feed(item, 2, sequence_length=16).samples[:2]))
    loss.backward()
    choices = 16 if item.loss == "question_answering" else item.vocabulary
    assert loss.item() == pytest.approx(math.log(choices), rel=0.2)  # Random weights guess.
    # A parameter without a gradient would make DistributedDataParallel wait for ever.
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_missing_transformers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for asked_for in (workload("gpt2_small").build, workload("gpt2_small").require_packages):
        with pytest.raises(UserError, match="type `pip install transformers`"):
            asked_for()
