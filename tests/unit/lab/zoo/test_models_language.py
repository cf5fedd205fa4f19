"""Transformers: a narrow one learns, and without the package one is told what to install."""

import math
import sys

import pytest
from torch.utils.data import default_collate

from stash.core.errors import UserError
from stash.lab.zoo import models
from stash.lab.zoo.feed import LOSSES, Synthetic
from stash.lab.zoo.registry import workload


def test_a_narrow_transformer_learns_from_a_tiny_batch(monkeypatch):
    bert = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    monkeypatch.setitem(models.BERT_SIZES, "bert_base_qa", bert)
    item = workload("bert_base_qa")
    model = item.build().train()
    loss = LOSSES[item.kind](
        model, default_collate(Synthetic(item, 2, sequence_length=16).samples[:2])
    )
    loss.backward()
    assert loss.item() == pytest.approx(math.log(16), rel=0.2)  # Random weights guess.
    # A parameter without a gradient would make DistributedDataParallel wait for ever.
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_missing_transformers_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for asked_for in (workload("bert_base_qa").build, workload("bert_base_qa").require_packages):
        with pytest.raises(UserError, match="type `pip install transformers`"):
            asked_for()
