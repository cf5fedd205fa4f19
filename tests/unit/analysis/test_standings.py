"""Figures against their like: hand-worked limits, how often they are wrong, and the table of checks on recordings."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from probe_builder import copy, host, links, probe

from bench.probe import RecordedGpu, recorded_faults, recorded_machine
from stash.analysis.findings import standings
from stash.analysis.findings.part_checks import state_findings
from stash.analysis.findings.probe_reading import are_alike, read
from stash.analysis.findings.rates import burst_rates, figure_rate
from stash.catalog.layers import merge
from stash.core.records.host import Gpu, PartFigure, PartState

KNOWN = merge(None, None)
CREATED = [f"2026-11-{day:02d}T12:00:00+00:00" for day in range(1, 29)]


def figure(rate: float, name: str = "triad", device: str = "cpu", **more: object) -> PartFigure:
    bursts = ((1e9 / rate,) * 4,) * 3
    return PartFigure(**{"device": device, "name": name, "unit": "bytes/s", "work": 1e9, "bursts": bursts, **more})


def probed(rate: float, day: int = 27, state: PartState | None = None, **about: object):
    measured = links(figures=(figure(rate),), states=() if state is None else (state,))
    return probe(host("a", measured, **about)).model_copy(update={"created": CREATED[day]})


def names(found) -> set[str]:
    return {each.name for each in found.findings}


def test_a_burst_counts_by_all_of_its_time_and_one_disturbed_burst_not_at_all():
    taken = PartFigure(
        device="cpu", name="triad", unit="bytes/s", work=6.0, bursts=((1.0, 1.0), (1.0, 5.0), (1.0, 1.0))
    )
    assert burst_rates(taken) == [6.0, 2.0, 6.0]
    assert figure_rate(taken).value == 6.0


def test_the_limit_is_students_with_a_typical_spread_for_one_degree_of_freedom():
    # four peers that agree: the variance is the typical one's quarter, one more part's 5/4 of it
    spread = 0.04
    found = math.log(standings.lowest_healthy([100.0] * 4, spread, tests=10) / 100)
    # Student's t of 4 degrees of freedom at 1/200 over 10 tests
    assert found == pytest.approx(-8.610 * math.sqrt(spread**2 / 4 * 5 / 4), rel=1e-3)


def test_of_healthy_machines_few_are_called_slow():
    chance, slow, rounds = np.random.default_rng(0), 0, 4000
    for _ in range(rounds):
        values = np.exp(chance.normal(0, 0.03, 8))
        slow += values[0] < standings.lowest_healthy(list(values[1:]), 0.035, 1)
    assert slow / rounds <= standings.ERROR_RATE * 1.5


def test_a_machine_is_held_against_earlier_probes_of_its_like_and_not_against_disturbed_ones():
    past = [probed(10e9 * (1 + 0.005 * (day % 3)), day) for day in range(8)]
    busy = probed(4e9, 20, PartState(device="cpu", others_cores=1.0))
    other = probed(1e9, 21, cores=96)
    found = read(probed(7e9), KNOWN, past=[*past, busy, other])
    (standing,) = found.standings
    assert (standing.peers, standing.slow) == (8, True)
    assert standing.about == "8 earlier probes of 1 machine of yours, 2026-11-01 to 2026-11-08"
    assert standing.ratio == pytest.approx(7 / 10.05)
    assert "slow-part" in names(found)
    assert "1 probe in 200" in next(each.text for each in found.findings if each.name == "slow-part")
    assert read(probed(9.9e9), KNOWN, past=past).findings == ()
    assert read(probed(7e9), KNOWN, past=past[:2]).standings == ()  # two prove nothing
    assert not are_alike(other, busy)


def test_one_gpu_alone_is_held_against_its_data_sheet_which_proves_little():
    name = "gemm bfloat16 8192x8192x8192"
    gpu = Gpu(index=0, name="NVIDIA A100-SXM4-80GB")
    measured = links(figures=(figure(200e12, name, "cuda:0", unit="FLOP/s", work=1e12, bursts=((0.005,) * 4,) * 3),))
    found = read(probe(host("a", measured, gpus=(gpu,))), KNOWN)
    (standing,) = found.standings
    assert standing.usual == pytest.approx((271.2 + 267.9) / 2 * 1e12)
    assert (standing.peers, standing.slow) == (0, True)
    assert names(found) == {"below-sheet"}
    assert "proves little" in found.findings[0].text
    slice_ = Gpu(index=0, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb")
    sliced = read(probe(host("a", measured, gpus=(slice_,))), KNOWN)
    assert sliced.standings == ()
    assert "is a slice" in sliced.notes[0]


def test_other_programs_that_move_memory_are_told_from_those_that_compute():
    def both(memory: float, products: float, day: int, others: float = 0.0):
        figures = (figure(memory), figure(products, "gemm float32 8x8x8"))
        state = PartState(device="cpu", others_cores=others)
        measured = links(figures=figures, states=(state,))
        return probe(host("a", measured)).model_copy(update={"created": CREATED[day]})

    past = [both(10e9, 10e9, day) for day in range(5)]
    assert {"busy-memory", "busy-cores"} <= names(read(both(4e9, 7e9, 20, 1.0), KNOWN, past=past))
    assert "busy-memory" not in names(read(both(6e9, 6e9, 20, 1.0), KNOWN, past=past))


def test_every_recorded_fault_is_named_and_a_healthy_machine_has_none(tmp_path: Path):
    for fault, (found, wanted) in recorded_faults(tmp_path).items():
        assert names(read(found, KNOWN)) == wanted, fault


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (PartState(device="cpu", throttled=0.4), "used up in 40% of its periods"),
        (PartState(device="cuda:3", users=("train.py (12)",)), r"GPU 3 was in use by train.py \(12\)"),
        (PartState(device="cuda:0", clock=0.99, held_by=("heat",)), None),
        (PartState(device="cuda:0", clock=0.6, held_by=("power cap",)), None),  # how a busy GPU keeps to its watts
    ],
)
def test_a_state_is_a_finding_by_the_table(state: PartState, says: str | None):
    found = list(state_findings(host("a", links(states=(state,)))))
    assert len(found) == (says is not None)
    if says is not None:
        assert re.search(says, found[0].text)


def test_a_gpu_that_slows_down_while_it_gets_warm_is_named():
    warm = figure(1e9, device="cuda:0", bursts=((1.0, 1.0), (1.1, 1.1), (1.2, 1.2)))
    cool = warm.model_copy(update={"bursts": warm.bursts[::-1]})
    assert [each.name for each in state_findings(host("a", links(figures=(warm, cool))))] == ["slow-when-warm"]


def test_a_machine_with_copies_alone_has_nothing_to_be_held_against():
    assert read(probe(host("a", links(copies=(copy("host", "host", 9e9),)))), KNOWN).standings == ()
    assert read(recorded_machine(RecordedGpu()), KNOWN).standings != ()
