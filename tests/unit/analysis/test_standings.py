"""Figures against their like: hand-worked limits, how often they are wrong, and the table of checks on recordings."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from probe_builder import copy, host, links, probe

from bench.probe import ScriptedGpu, scripted_faults, scripted_machine
from stash.analysis.findings import standings
from stash.analysis.findings.part_checks import state_findings
from stash.analysis.findings.probe_reading import are_alike, read_probe
from stash.analysis.findings.rates import (
    burst_rates,
    exchange_rate,
    figure_rate,
    own_rate,
    sustained_figure,
)
from stash.analysis.findings.rates import list_links as rated
from stash.catalog.layers import merge
from stash.core.records.host import Exchange, Gpu, PartFigure, PartState, Timing

KNOWN = merge(None, None)
CREATED = [f"2026-11-{day:02d}T12:00:00+00:00" for day in range(1, 29)]


def figure(
    rate: float, name: str = "gemm float32 8x8x8", device: str = "cpu", **more: object
) -> PartFigure:
    bursts = ((1e9 / rate,) * 4,) * 3
    return PartFigure(
        **{"device": device, "name": name, "unit": "bytes/s", "work": 1e9, "bursts": bursts, **more}
    )


def probed(rate: float, day: int = 27, state: PartState | None = None, **about: object):
    measured = links(figures=(figure(rate),), states=() if state is None else (state,))
    return probe(host("a", measured, **about)).model_copy(update={"created": CREATED[day]})


def names(found) -> set[str]:
    return {each.name for each in found.findings}


def test_a_burst_counts_by_all_of_its_time_and_one_disturbed_burst_not_at_all():
    taken = PartFigure(
        device="cpu",
        name="triad",
        unit="bytes/s",
        work=6.0,
        bursts=((1.0, 1.0), (1.0, 5.0), (1.0, 1.0)),
    )
    assert burst_rates(taken) == [6.0, 2.0, 6.0]
    assert figure_rate(taken).value == 6.0
    assert sustained_figure(taken) == 36 / 10


def test_of_many_bursts_the_second_fastest_counts_and_half_of_them_may_be_disturbed():
    seconds = (2.0, 1.0, 1.1, 9.0, 1.2, 9.0, 1.25, 9.0)
    taken = figure(
        1.0, work=1.0, bursts=tuple((each,) for each in seconds), cpu_seconds=(1.0,) * 7 + (0.5,)
    )
    rate = figure_rate(taken)
    assert rate.value == pytest.approx(1 / 1.1)
    assert rate.low <= 1 / 1.25
    assert rate.high >= 1.0
    assert own_rate(taken) == 1.0
    assert own_rate(figure(1.0)) is None


def test_the_limit_is_students_with_a_typical_spread_for_some_degrees_of_freedom():
    # four peers that agree: the variance is the typical one's quarter, one more part's 5/4 of it
    found = math.log(
        standings.lowest_healthy([100.0] * 4, standings.UsualSpread(0.04, 1), tests=10) / 100
    )
    # Student's t of 4 degrees of freedom at 1/200 over 10 tests
    assert found == pytest.approx(-8.610 * math.sqrt(0.04**2 / 4 * 5 / 4), rel=1e-3)
    # and of 7 degrees
    found = math.log(
        standings.lowest_healthy([100.0] * 4, standings.UsualSpread(0.04, 4), tests=10) / 100
    )
    assert found == pytest.approx(-5.408 * math.sqrt(0.04**2 * 4 / 7 * 5 / 4), rel=1e-3)


def test_a_kind_of_figure_has_its_own_spread_so_that_one_that_is_often_slow_proves_less():
    def at(rate: float, name: str, day: int):
        return probe(host("a", links(figures=(figure(rate, name),)))).model_copy(
            update={"created": CREATED[day]}
        )

    for name, is_slow in (("gemm float32 8x8x8", True), ("triad", False), ("triad, 1 core", False)):
        past = [at(10e9, name, day) for day in range(5)]
        (standing,) = read_probe(at(8.6e9, name, 20), KNOWN, past=past).standings
        assert standing.slow is is_slow, name


@pytest.mark.parametrize(("nodes", "is_slow"), [(1, False), (2, True)])
def test_where_a_host_puts_virtual_cores_halves_their_exchange_and_blames_nobody(nodes, is_slow):
    def at(rate: float, day: int):
        timing = Timing(bytes=1 << 24, seconds=((1 << 24) / rate,) * 8)
        swept = Exchange(backend="gloo", nodes=nodes, ranks=2, timings=(timing,))
        return probe(host("a", links(exchanges=(swept,)))).model_copy(
            update={"created": CREATED[day]}
        )

    (standing,) = read_probe(
        at(1.4e9, 20), KNOWN, past=[at(2.7e9, day) for day in range(7)]
    ).standings
    assert standing.slow is is_slow


def test_two_probes_differ_beyond_what_such_figures_scatter_whatever_their_own_intervals_say():
    def link(rate: float, name: str, repetitions: int = 4):
        (found,) = rated(
            host(
                "a", links(figures=(figure(rate, name, bursts=((1e9 / rate,) * 2,) * repetitions),))
            )
        )
        return found

    product = "gemm float32 8x8x8"
    triad = "triad"
    # a narrow interval is no proof
    assert not standings.differ(link(10e9, product), link(9.5e9, product))
    assert standings.differ(link(10e9, product), link(8.5e9, product))
    # nor is none an excuse
    assert standings.differ(link(10e9, product), link(8.5e9, product, repetitions=1))
    assert not standings.differ(link(10e9, triad), link(7e9, triad))


def test_the_exchange_is_held_against_its_like_by_one_message_whatever_the_sweep_reached():
    def swept(backend: str, *sizes: int):
        timings = tuple(Timing(bytes=size, seconds=(0.02, 0.01, 0.01, 0.01)) for size in sizes)
        return exchange_rate(Exchange(backend=backend, nodes=1, ranks=2, timings=timings))

    assert (
        swept("gloo", 1 << 20, 1 << 24)[0] == swept("gloo", 1 << 20, 1 << 24, 1 << 28)[0] == 1 << 24
    )
    assert swept("nccl", 1 << 20, 1 << 24, 1 << 28)[0] == 1 << 28
    assert swept("gloo", 1 << 24)[1].value == pytest.approx((1 << 24) / 0.01)
    assert swept("gloo") is None


def test_of_healthy_machines_few_are_called_slow():
    chance = np.random.default_rng(0)
    slow = 0
    rounds = 4000
    for _ in range(rounds):
        values = np.exp(chance.normal(0, 0.03, 8))
        slow += values[0] < standings.lowest_healthy(
            list(values[1:]), standings.UsualSpread(0.035, 1), 1
        )
    assert slow / rounds <= standings.ERROR_RATE * 1.5


def test_a_machine_is_held_against_earlier_probes_of_its_like_and_not_against_disturbed_ones():
    past = [probed(10e9 * (1 + 0.005 * (day % 3)), day) for day in range(8)]
    busy = probed(4e9, 20, PartState(device="cpu", others_cores=1.0))
    other = probed(1e9, 21, cores=96)
    found = read_probe(probed(7e9), KNOWN, past=[*past, busy, other])
    (standing,) = found.standings
    assert (standing.peers, standing.slow) == (8, True)
    assert standing.about == "8 earlier probes of 1 machine of yours, 2026-11-01 to 2026-11-08"
    assert standing.ratio == pytest.approx(7 / 10.05)
    assert "slow-part" in names(found)
    assert "1 probe in 200" in next(
        each.text for each in found.findings if each.name == "slow-part"
    )
    assert read_probe(probed(9.9e9), KNOWN, past=past).findings == ()
    assert read_probe(probed(7e9), KNOWN, past=past[:2]).standings == ()  # two prove nothing
    assert not are_alike(other, busy)


def test_one_gpu_alone_is_held_against_its_data_sheet_which_proves_little():
    name = "gemm bfloat16 8192x8192x8192"
    gpu = Gpu(index=0, name="NVIDIA A100-SXM4-80GB")
    measured = links(
        figures=(
            figure(200e12, name, "cuda:0", unit="FLOP/s", work=1e12, bursts=((0.005,) * 4,) * 3),
        )
    )
    found = read_probe(probe(host("a", measured, gpus=(gpu,))), KNOWN)
    (standing,) = found.standings
    assert standing.usual == pytest.approx((271.2 + 267.9) / 2 * 1e12)
    assert (standing.peers, standing.slow) == (0, True)
    assert names(found) == {"below-sheet"}
    assert "proves little" in found.findings[0].text
    slice_ = Gpu(index=0, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb")
    sliced = read_probe(probe(host("a", measured, gpus=(slice_,))), KNOWN)
    assert sliced.standings == ()
    assert "is a slice" in sliced.notes[0]


def test_other_programs_that_move_memory_are_told_from_those_that_compute_by_the_time_of_their_core():
    def both(memory: float, products: float, day: int, got: float = 1.0, others: float = 0.0):
        """On a core that gave ``got`` of its time, where others used so many; rates are of that time."""
        figures = [
            figure(got * rate, f"{name}, 1 core", cpu_seconds=(4e9 / rate,) * 3)
            for name, rate in (("triad", memory), ("gemm float32 8x8x8", products))
        ]
        measured = links(figures=figures, states=(PartState(device="cpu", others_cores=others),))
        return probe(host("a", measured)).model_copy(update={"created": CREATED[day]})

    past = [both(10e9, 10e9, day) for day in range(5)]
    eaten = read_probe(both(6.5e9, 9.8e9, 20, 0.4, 1.0), KNOWN, past=past)
    assert {"busy-memory", "busy-cores"} <= names(eaten)
    (text,) = [each.text for each in eaten.findings if each.name == "busy-memory"]
    assert "one core moves 65% of what is usual, while its matrix products are at 98%" in text
    # half of a core's time is lost to a busy loop, and both suffer by that alone
    assert "busy-memory" not in names(
        read_probe(both(9.8e9, 9.9e9, 20, 0.5, 1.0), KNOWN, past=past)
    )
    # nobody else is there
    assert "busy-memory" not in names(read_probe(both(6.5e9, 9.8e9, 20), KNOWN, past=past))


def test_every_recorded_fault_is_named_and_a_healthy_machine_has_none(tmp_path):
    for fault, (found, wanted) in scripted_faults(tmp_path).items():
        assert names(read_probe(found, KNOWN)) == wanted, fault


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (PartState(device="cpu", throttled=0.4), "used up in 40% of its periods"),
        (
            PartState(device="cuda:3", users=("train.py (12)",)),
            r"GPU 3 was in use by train.py \(12\)",
        ),
        (PartState(device="cuda:0", clock=0.99, held_by=("heat",)), None),
        (
            PartState(device="cuda:0", clock=0.6, held_by=("power cap",)),
            None,
        ),  # how a busy GPU keeps to its watts
    ],
)
def test_a_state_is_a_finding_by_the_table(state, says):
    found = list(state_findings(host("a", links(states=(state,)))))
    assert len(found) == (says is not None)
    if says is not None:
        assert re.search(says, found[0].text)


def test_a_gpu_that_slows_down_while_it_gets_warm_is_named():
    warm = figure(1e9, device="cuda:0", bursts=((1.0, 1.0), (1.1, 1.1), (1.2, 1.2)))
    cool = warm.model_copy(update={"bursts": warm.bursts[::-1]})
    assert [each.name for each in state_findings(host("a", links(figures=(warm, cool))))] == [
        "slow-when-warm"
    ]


def test_a_machine_with_copies_alone_has_nothing_to_be_held_against():
    assert (
        read_probe(probe(host("a", links(copies=(copy("host", "host", 9e9),)))), KNOWN).standings
        == ()
    )
    assert read_probe(scripted_machine(ScriptedGpu()), KNOWN).standings != ()


def test_what_lacks_little_is_not_slow_however_well_its_peers_agree():
    peers = [100.0] * 50
    assert standings.lowest_healthy(peers, standings.UsualSpread(0.001, 1), 1) == pytest.approx(95)
