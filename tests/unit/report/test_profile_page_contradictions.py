"""One page never shows two values of one quantity: of random profiles, table, sentences and details agree."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.ladder import EXCHANGE_STALLS
from stash.core.measured import Collective, Rate
from stash.core.records.profile import Loader, Profile
from stash.report.profile_page import page as page_of

RUNGS = ("solo", "crowd", "node", "cluster", "warm", "cold")
TIME = r"([\d,.]+) (?:([±+].*?) )?(s|ms|µs)"


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Of four ranks on two nodes, with all second opinions; stalls may be measured as negative."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    rounds = draw(st.integers(1, 6))
    scale = 10.0 ** draw(st.floats(-5, 1))
    noise = draw(st.sampled_from([0.001, 0.01, 0.1]))
    means = scale * np.cumsum([1.0, *rng.exponential(0.2, len(RUNGS) - 1)])
    times = {
        name: (mean * rng.lognormal(0, noise, rounds)).tolist()
        for name, mean in zip(RUNGS, means, strict=True)
    }
    workers = draw(st.integers(0, 4))
    return build(
        times,
        ranks=4,
        nodes=2,
        device=draw(st.sampled_from(["cpu", "cuda"])),
        block_extra={"warm": {"wait_seconds": scale * rng.exponential(1.0)}},
        workload={"parameter_bytes": 4_000_000, "loaders": (Loader(kind="map", workers=workers),)},
        rates=tuple(
            Rate(feed="warm", rank=r, round=9, samples=8, seconds=scale * rng.exponential(1))
            for r in range(4)
        ),
        collectives=(
            Collective(
                scope="world", ranks=4, bytes=4_000_000, seconds=scale * rng.exponential(0.4)
            ),
        ),
    )


def page(profile):
    breakdown = attribute(profile)
    return page_of(breakdown, verdict(breakdown, profile), profile)


@given(profiles())
@settings(max_examples=50, deadline=None)
def test_table_sentences_and_details_agree(profile):
    shown = page(profile)
    rows = {row.name: row for row in shown.rows}
    facts = dict(shown.chapters[0].facts)
    for name, number, spread, unit in re.findall(
        rf"The (\w+) stall takes {TIME} of every", shown.verdict[0]
    ):
        assert f"{number} {unit}" == rows[name].time
        assert spread in ("", rows[name].interval)
    assert set(
        re.findall(r"of every ([\d,.]+ \S+) step|a step of ([\d,.]+ \S+):", shown.verdict[0])
    ) <= {
        (shown.rows[-1].time, ""),
        ("", shown.rows[-1].time),
    }
    exposed = re.search(r"(\d[\d,.]*) \S+ exposed", facts["gradients"])
    if exposed is not None:
        parts = [float(rows[name].time.split()[0].replace(",", "")) for name in EXCHANGE_STALLS]
        assert abs(float(exposed[1].replace(",", "")) - sum(parts)) < 1e-6
    speeds = set(re.findall(r"could train ([\d,.]+) samples", shown.verdict[0]))
    assert all(f"devices can train {speed}," in facts["samples/s"] for speed in speeds)


def test_a_figure_that_rounding_to_the_sum_has_moved_is_moved_everywhere():
    # One by one these stalls are 145.7, 25.5, 42.2 and 14.7 ms: together 228.1 of a step that rounds to 228.2.
    times = {"solo": 0.14573, "crowd": 0.17126, "node": 0.213505, "warm": 0.228195}
    profile = build(
        {name: [seconds] * 3 for name, seconds in times.items()},
        workload={"parameter_bytes": 46_800_000},
    )
    shown = page(profile)
    assert {row.name: row.time for row in shown.rows}["interconnect"] == "42.3 ms"
    assert "of every 228.2 ms step: 145.7 ± 2.8 ms (63.9%)" in shown.verdict[0]
    assert "interconnect, 42.3 ± 3.5 ms (18.5%)" in shown.verdict[0]
    assert "42.3 ms exposed" in dict(shown.chapters[0].facts)["gradients"]


@given(profiles())
@settings(max_examples=50, deadline=None)
def test_what_looks_wrong_is_explained_on_the_page(profile):
    shown = page(profile)
    facts = dict(shown.chapters[0].facts)
    notes = " ".join(text for label, text in shown.chapters[0].facts if label == "note")
    assert not re.search(r"-[\d,.]+ \S+ exposed", facts["gradients"])
    assert not any(float(share) > 100 for share in re.findall(r"([\d.]+)%", shown.verdict[0]))
    for row in shown.rows:
        if row.time.startswith("-"):
            assert f"{row.name} ({row.time})" in notes
        if row.share and float(row.share[:-1]) > 100.1:
            assert "other shares exceed 100%" in notes
    if profile.workload.loaders[0].workers == 0:
        assert "workers also slow" not in notes
        assert "workers compete" not in notes
    everything = " ".join((shown.verdict[0], *shown.next_steps, *facts.values(), notes))
    assert not re.search(r"\d [kMG]B/s", facts["gradients"] + shown.verdict[0])  # links are in bits
    assert all(int(share) <= 100 for share in re.findall(r"(\d+)% of it behind", everything))
