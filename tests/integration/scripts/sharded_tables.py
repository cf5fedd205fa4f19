"""DLRM with its tables shared among ranks, each table whole on one of them, as its paper shards them (section 3).

Before a step's lookups every rank sends the ids that the others' tables are asked for, and gets those its own are
asked for; the vectors go back the same way, and their gradients come again. Tables are in no all-reduce: gradients of
a rank's own are divided by the ranks, so that training is as that of tables that every rank holds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from stash.lab.zoo.feed import click_through, synthetic_feed
from stash.lab.zoo.models import DLRM
from stash.lab.zoo.registry import workload


def placed(bytes_of: Sequence[float], ranks: int) -> list[list[int]]:
    """The tables of each rank: one after the other, the largest first, to whoever holds least."""
    own: list[list[int]] = [[] for _ in range(ranks)]
    for table in sorted(range(len(bytes_of)), key=lambda each: -bytes_of[each]):
        min(own, key=lambda held: (sum(bytes_of[each] for each in held), len(held))).append(table)
    return [sorted(held) for held in own]


def shard_tables(model: DLRM, rank: int, ranks: int) -> None:
    """Keep only this rank's tables of ``model``, which is to be wrapped by DistributedDataParallel afterwards."""
    tables = [cast(nn.EmbeddingBag, table) for table in model.tables]
    own = placed([table.weight.numel() for table in tables], ranks)
    model.look_up = _Exchange(tables, own, rank)  # type: ignore[method-assign]
    model.tables = nn.ModuleList(tables[number] for number in own[rank])
    for number in own[rank]:
        tables[number].weight.register_hook(lambda gradient: gradient / ranks)  # type: ignore[no-untyped-call]
    names = [f"tables.{number}.weight" for number in range(len(own[rank]))]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)  # type: ignore[no-untyped-call]


class _Exchange:
    """Looks up what all ranks ask for in this rank's tables, and gets what the others looked up for this one."""

    def __init__(self, tables: Sequence[nn.EmbeddingBag], own: list[list[int]], rank: int) -> None:
        self._tables = [tables[number] for number in own[rank]]
        self._rows = torch.tensor([table.num_embeddings for table in tables])
        self._order = torch.tensor([number for held in own for number in held])
        self._counts = [len(held) for held in own]
        self._own = len(self._tables)

    def __call__(self, categories: Tensor) -> list[Tensor]:
        """Vectors of (batch, tables) ids, (batch, dimension) for each table in order; ranks' batches are alike."""
        batch, ranks, device = len(categories), len(self._counts), categories.device
        order = self._order.to(device)
        sent = [batch * count for count in self._counts]
        got = [batch * self._own] * ranks
        ids = (categories % self._rows.to(device))[:, order].t().contiguous().view(-1)  # by rank, then table
        asked = ids.new_zeros(sum(got))
        dist.all_to_all_single(asked, ids, got, sent)
        by_rank = asked.view(ranks, self._own, batch)
        found = torch.stack(
            [table(by_rank[:, at].reshape(-1, 1)).view(ranks, batch, -1) for at, table in enumerate(self._tables)],
            dim=1,
        )  # fmt: skip
        dimension = found.shape[-1]
        back = _Back.apply(found.reshape(-1, dimension), got, sent)  # type: ignore[no-untyped-call]
        return [*back.view(len(order), batch, dimension)[order.argsort()]]


class _Back(torch.autograd.Function):
    """Rows to those who asked for them, of (rows, as many for each rank, as many from each); gradients return."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, given: list[int], taken: list[int]) -> Tensor:
        ctx.given, ctx.taken = given, taken
        back = rows.new_empty(sum(taken), rows.shape[1])
        dist.all_to_all_single(back, rows, taken, given)
        return back

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        rows = gradients[0].new_empty(sum(ctx.given), gradients[0].shape[1])
        dist.all_to_all_single(rows, gradients[0].contiguous(), ctx.given, ctx.taken)
        return rows, None, None


def main() -> None:
    """Train on random records, until ``--steps`` are done or for ever."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--whole", action="store_true", help="every rank holds all tables")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    records = synthetic_feed(workload("dlrm"), 1000 * args.batch * world)
    loader = DataLoader(records, args.batch, sampler=DistributedSampler(records, drop_last=True), drop_last=True)
    torch.manual_seed(0)
    model = DLRM()
    if not args.whole:
        shard_tables(model, rank, world)
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.5, momentum=0.9)
    step = 0
    while step != args.steps:
        for batch in loader:
            optimizer.zero_grad()
            loss = click_through(trained, batch)
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.steps:
                break
    if rank == 0:
        print(f"loss {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
