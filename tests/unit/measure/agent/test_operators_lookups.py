"""What is looked up in embedding tables is counted in one step: rows, distinct ones, the hottest, gradients."""

from __future__ import annotations

import pytest
import torch

from stash.measure.agent.runner.operators import LookupCounter


class Model(torch.nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(100, 4, mode="sum", sparse=sparse)
        self.words = torch.nn.Embedding(10, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bag(ids).sum() + self.words(ids[:, 0]).sum()


@pytest.mark.parametrize("sparse", [False, True])
def test_lookups_are_counted_by_table(sparse: bool) -> None:
    counter, model = LookupCounter(), Model(sparse)
    counter.begin()
    for _ in range(2):  # an accumulated step
        model(torch.tensor([[1, 1, 2], [1, 3, 4]]))
    bag, words = counter.end()
    assert (bag["rows"], bag["dimension"], bag["lookups"], bag["distinct"]) == (100, 4, 12, 4)
    assert bag["hottest"] == pytest.approx(6 / 12)
    # dense: the table's 100 x 4 floats; sparse: 12 rows of 4 floats, each with its number
    assert bag["gradient_bytes"] == (12 * (16 + 8) if sparse else 1600)
    assert bag["sparse"] is sparse
    assert bag["forward_seconds"] > 0
    assert (words["lookups"], words["distinct"], words["hottest"]) == (4, 1, 1.0)
    # AND nothing is looked at any more
    model(torch.tensor([[1, 1, 2]]))
    assert counter.end() == []


class OfWords(torch.nn.Embedding):
    """Takes words, and knows their rows itself."""

    def forward(self, words: list[str]) -> torch.Tensor:
        return super().forward(torch.tensor([len(word) for word in words]))


class InTwoHalves(torch.nn.Embedding):
    """Has no one table: what is trained are two."""

    def __init__(self) -> None:
        super().__init__(10, 8)
        self.halves = torch.nn.ParameterList([torch.ones(10, 4), torch.ones(10, 4)])
        del self.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.cat(list(self.halves), 1)[ids]


@pytest.mark.parametrize(
    ("table", "given"), [(OfWords(10, 8), ["ab", "c"]), (InTwoHalves(), torch.tensor([1, 2]))]
)
def test_a_table_of_another_kind_is_no_concern_of_the_step(
    table: torch.nn.Module, given: object
) -> None:
    counter = LookupCounter()
    counter.begin()
    assert table(given).shape == (2, 8)
    assert counter.end() == []
    assert "counting lookups in embedding tables failed (AttributeError" in (counter.why or "")
