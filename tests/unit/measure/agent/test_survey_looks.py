"""What a few untimed steps tell: operators, gradients in several steps, buckets; and what they cost at most."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ranks_in_memory import Seat, SetClock, Table, orders
from torch import nn

from stash.measure.agent.runner import survey
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.wraps import replicas
from stash.measure.protocol.journal import Journal


def a_rank(folder: Path) -> tuple[OwnRank, nn.Module]:
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    given = orders(folder, budget=100.0)
    rank = OwnRank(given, SetClock(), Seat(Table(1), 0), Journal(given.files))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rank.counted_optimizer = SimpleNamespace(optimizer=lambda: optimizer)
    return rank, model


def step(rank: OwnRank, model: nn.Module) -> None:
    model(torch.randn(5, 4)).sum().backward()
    rank.optimizer.step()


def looked(look: Generator[None, None, Any], rank: OwnRank, model: nn.Module) -> Any:
    """What a look tells after the steps that it takes."""
    try:
        while True:
            next(look)
            step(rank, model)
    except StopIteration as ended:
        return ended.value


@pytest.mark.parametrize(
    ("step_seconds", "budget", "steps"),
    [(0.1, 60.0, 5), (1.0, 60.0, 3), (9.0, 60.0, 1), (0.0, 60.0, 5), (0.4, 1.0, 2)],
)
def test_steps_are_looked_at_for_a_twentieth_of_the_budget_and_once_whatever_it_takes(
    step_seconds: float, budget: float, steps: int
) -> None:
    assert survey.affordable_looks(step_seconds, budget) == steps
    assert survey.affordable_looks(step_seconds, float("inf")) == 5


def test_a_look_at_operators_takes_one_step_with_its_update(tmp_path: Path) -> None:
    rank, model = a_rank(tmp_path)
    learned = looked(survey.count_operators(rank), rank, model)
    assert learned["flops_per_step"] == sum(row["flops"] or 0 for row in learned["operators"])
    assert any(row["operator"] == "aten.add_" for row in learned["operators"])
    assert "unrecorded" not in learned


def test_gradients_are_looked_at_in_several_steps_and_buckets_are_ready_with_their_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "bucket_contents", lambda: [(24, ("1",)), (72, ("0", "1"))])
    rank, model = a_rank(tmp_path)
    seen = [looked(survey.time_gradients(rank), rank, model) for _ in range(3)]
    learned = survey.combine_gradients(seen)
    last = next(row for row in learned["gradients"] if row["name"] == "0")
    assert last["ready_steps"][0] == pytest.approx(last["ready_seconds"], abs=1e-6)
    assert len(last["ready_steps"]) == 3
    assert [bucket["ready_steps"] for bucket in learned["buckets"]] == [
        [0.0] * 3,
        last["ready_steps"],
    ]
    assert "unrecorded" not in learned


def test_one_look_tells_no_spread(tmp_path: Path) -> None:
    rank, model = a_rank(tmp_path)
    learned = survey.combine_gradients([looked(survey.time_gradients(rank), rank, model)])
    assert len(learned["gradients"]) == 2
    assert "tells no spread" in learned["unrecorded"]["ready_steps"]


def test_what_was_not_ready_in_every_look_has_no_spread() -> None:
    row = {"name": "w", "bytes": 4, "ready_seconds": 0.1}
    assert survey.combine_readiness([[row], []])[0]["ready_steps"] == []
    assert (
        survey.combine_readiness([[row], [{**row, "ready_seconds": None}]])[0]["ready_steps"] == []
    )
    assert survey.combine_readiness([]) == []


def test_what_fails_while_looking_is_said_and_ends_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(device: object) -> None:
        raise RuntimeError("no events on this device")

    monkeypatch.setattr(survey, "Instant", fail)
    rank, model = a_rank(tmp_path)
    learned = survey.combine_gradients([looked(survey.time_gradients(rank), rank, model)])
    assert learned["gradients"] == []
    assert "no events on this device" in learned["unrecorded"]["ready_steps"]


def test_reasons_of_several_looks_stand_side_by_side(tmp_path: Path) -> None:
    rank, model = a_rank(tmp_path)
    step(rank, model)
    found = survey.combine_facts(rank, survey.TOO_LONG, survey.EXCHANGING).facts
    facts = found["unrecorded"]
    assert facts.keys() == {"operators", "ready_steps"}
    assert all(why.startswith("not recorded: ") for why in facts.values())
    assert found["optimizer_bytes"] == (12 + 6) * 4  # its momentum


def test_an_update_without_an_optimizer_keeps_nothing_known() -> None:
    assert survey.optimizer_bytes(SimpleNamespace(param_groups=[])) is None
    assert survey.optimizer_bytes(torch.optim.SGD([nn.Parameter(torch.zeros(2))])) == 0
