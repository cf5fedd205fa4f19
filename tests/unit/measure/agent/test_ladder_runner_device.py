"""The ladder beside an accelerator: which batches are handed out where, and what of them is known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ranks_in_memory import BATCHES, Job, job, orders, reading

from stash.measure.protocol.messages import JobFacts, LadderChosen

pytestmark = pytest.mark.usefixtures("one_process_after_the_other")


def train_on_meta(tmp_path: Path, given: list[torch.Tensor]) -> tuple[Job, set[tuple[str, str]]]:
    """A job whose parameters are on an accelerator that computes nothing; also which rung got batches where."""
    one = job(orders(tmp_path, rungs=("resident", "solo", "warm")))
    one.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2, device="meta"))], lr=0.1)
    seen = set()
    for batch, mode in reading(one, given):
        seen.add((mode, batch.device.type))
        one.step(1.0)
    return one, seen


def test_resident_batches_are_handed_out_on_the_device_and_others_where_the_loader_leaves_them(
    tmp_path: Path,
) -> None:
    one, seen = train_on_meta(tmp_path, BATCHES)
    assert seen == {("real", "cpu"), ("resident", "meta"), ("replay", "cpu"), ("warm", "cpu")}
    assert {block.rung for block in one.blocks()} == {"resident", "solo", "warm"}


def test_of_batches_that_arrive_on_the_device_the_transfer_is_unknown_and_said_to_be_part_of_prep(
    tmp_path: Path,
) -> None:
    one, seen = train_on_meta(tmp_path, [batch.to("meta") for batch in BATCHES])
    assert {where for _, where in seen} == {"meta"}
    assert {block.rung for block in one.blocks()} == {"solo", "warm"}
    chosen = next(m for m in one.messages() if isinstance(m, LadderChosen))
    assert "arrive on meta" in chosen.skipped["resident"]
    facts = [message.facts for message in one.messages() if isinstance(message, JobFacts)]
    assert [known["loaders"][0]["on_device"] for known in facts if "loaders" in known] == [
        True,
        True,
    ]
