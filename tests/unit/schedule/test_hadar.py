"""Rounds and courses of Hadar, held against those of its implementation in bit sets (archive-2026-11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from schedules import cluster, example, job, matrix

from stash.schedule import hadar
from stash.schedule.allocation import POLICIES
from stash.schedule.matrix import RateTable
from stash.schedule.placement import GangPlace
from stash.schedule.simulate import simulate

RECORDED = Path(__file__).parents[2] / "recorded" / "schedule"


def gang_place(parts: list[list[int]]) -> GangPlace:
    return tuple((node, gpus) for node, gpus in parts)


def choose_places(case: dict[str, Any]) -> hadar.HadarChoice:
    machines = cluster(**case["nodes"])
    rates = matrix(
        {(model, gpus, kind): rate for model, gpus, kind, rate in case["rates"]},
        {(model, gpus, kind, nodes): rate for model, gpus, kind, nodes, rate in case["spread"]},
    )
    jobs = [job(name, steps, gpus, model=model) for name, steps, gpus, model in case["jobs"]]
    table = RateTable(jobs, machines, rates)
    asked = hadar.HadarRound(
        jobs=np.arange(len(jobs)),
        work=np.array([each.steps for each in jobs]) / table.packed.max(axis=1),
        left=np.array(case["left"]),
        elapsed=np.array(case["elapsed"]),
        gpus=np.array([each.gpus for each in jobs]),
        running=[gang_place(place) for place in case["running"]],
        pause=np.array(case["pause"]),
        nodes=[node.gpus for node in machines.nodes],
        kind_of=[machines.types.index(node.gpu) for node in machines.nodes],
    )
    return hadar.place(asked, table)


def test_recorded_rounds_have_the_same_places_and_rates() -> None:
    cases = json.loads((RECORDED / "hadar_rounds.json").read_text())
    assert sum(any(len(place) > 1 for place in case["places"].values()) for case in cases) >= 5
    for case in cases:
        found = choose_places(case)
        assert found.places == {int(name): gang_place(place) for name, place in case["places"].items()}
        assert found.rates == {int(name): rate for name, rate in case["rates_found"].items()}


def test_a_recorded_course_of_gavels_trace_ends_at_the_same_moments() -> None:
    finish = json.loads((RECORDED / "hadar_course.json").read_text())
    jobs, machines, rates = example()
    assert simulate(jobs, machines, rates, POLICIES["hadar"]).finish.tolist() == finish
