"""DLRM's tables on ranks of their own: where they go, and lookups and gradients as of tables held whole."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from stash.lab.zoo import models
from stash.lab.zoo.models import DLRM
from tests.integration.scripts import sharded_tables
from tests.integration.scripts.sharded_tables import placed, shard_tables


def test_tables_go_to_whoever_holds_least_the_largest_first() -> None:
    assert placed([5, 9, 1, 4, 4], 2) == [[1, 4], [0, 2, 3]]  # 9 | 5, 4; of equal sums to the one with fewer: 13 | 10
    assert placed([1.0], 3) == [[0], [], []]


@pytest.mark.slow  # four processes
def test_ranks_that_share_tables_train_as_ranks_that_hold_all_of_them() -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [sharded_tables.__file__, "--batch", "16", "--steps", "6"]
    losses = []
    for option in ([], ["--whole"]):
        words = [*launcher, *script, *option]
        run = subprocess.run(words, capture_output=True, text=True, check=False, timeout=180)
        assert run.returncode == 0, run.stderr
        losses.append(float(run.stdout.partition("loss ")[2].split()[0]))
    assert losses[1] == pytest.approx(losses[0], abs=2e-4)


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def small(monkeypatch: pytest.MonkeyPatch) -> DLRM:
    monkeypatch.setattr(models, "TABLES", (7, 3, 11))
    torch.manual_seed(1)
    return DLRM(dimension=4)


def test_one_rank_that_holds_all_tables_looks_up_and_learns_as_without_an_exchange(
    monkeypatch: pytest.MonkeyPatch, one_rank: None
) -> None:
    plain, sharded = small(monkeypatch), small(monkeypatch)
    shard_tables(sharded, 0, 1)
    dense, ids = torch.rand(5, models.DENSE), torch.randint(0, 100, (5, 3))
    for model in (plain, sharded):
        model(dense, ids).sum().backward()
    assert torch.equal(plain(dense, ids), sharded(dense, ids))
    for one, other in zip(plain.parameters(), sharded.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad)


def test_two_ranks_get_their_own_vectors_in_the_tables_order(monkeypatch: pytest.MonkeyPatch) -> None:
    # both ranks in this process: each goes on until it needs what the other has not sent yet, and begins again
    whole = small(monkeypatch)
    ids = [torch.randint(0, 100, (2, 3)) for _ in range(2)]
    own = placed([table.weight.numel() for table in whole.tables], 2)
    assert own == [[2], [0, 1]]
    halves = [sharded_tables._Exchange(list(whole.tables), own, rank) for rank in range(2)]
    sent: dict[tuple[int, int], tuple[torch.Tensor, ...]] = {}

    def exchange(into, given, got, splits):
        number = next(calls)
        sent[number, rank] = given.split(splits)
        if (number, 1 - rank) not in sent:
            raise _NotSentError
        parts = [sent[number, other][rank] for other in range(2)]
        assert [len(part) for part in parts] == got
        into.copy_(torch.cat(parts))

    monkeypatch.setattr(sharded_tables.dist, "all_to_all_single", exchange)
    found = {}
    for rank in (0, 1, 0, 1):
        calls = itertools.count()
        with contextlib.suppress(_NotSentError):
            found[rank] = halves[rank](ids[rank])
    calls, rank = itertools.count(), 0
    found[0] = halves[0](ids[0])
    for rank in range(2):
        for one, other in zip(found[rank], whole.look_up(ids[rank]), strict=True):
            assert torch.equal(one, other)


class _NotSentError(Exception):
    """The other rank has yet to come that far."""
