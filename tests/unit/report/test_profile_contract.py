"""The document that ``stash show --json`` prints, and its sums."""

import json
from decimal import Decimal

import numpy as np
import pytest
from golden_profiles import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.report.profile_contract import document
from stash.report.profile_page import table_rows


def test_the_json_of_the_golden_profile_is_the_hand_worked_one():
    shown = json.loads((GOLDEN / "one-node.expected.json").read_text(encoding="utf-8"))
    assert [(s["name"], s["seconds"]) for s in shown["stalls"]] == [
        ("compute", 0.1),
        ("contention", 0.004),
        ("interconnect", 0.036),
        ("prep", 0.03),
        ("fetch", 0.006),
    ]
    assert shown["step_seconds"] == 0.176
    assert shown["samples_per_second"] == 181.8  # 32 samples in 176 ms
    assert shown["paper"] == {
        "interconnect_pct": 28.6,
        "network_pct": None,
        "prep_pct": 17.6,
        "fetch_pct": 3.4,
    }
    network = {
        "name": "network",
        "why": "one node",
        "possible": False,
        "contained_in": None,
        "share_at_most": None,
    }
    assert shown["skipped"][1] == network


def test_the_verdict_is_null_where_it_is_unknown():
    profile = build({"solo": [0.10, 0.10, 0.10, 0.10], "crowd": [0.10, 0.14, 0.08, 0.12]})
    breakdown = attribute(profile)
    shown = document(breakdown, verdict(breakdown, profile), profile)["verdict"]
    assert (shown["stall"], shown["kind"], shown["stalls"]) == (None, "cannot tell", [])
    assert shown["open"] == [{"name": "contention", "high": pytest.approx(0.0511, abs=1e-4)}]
    assert shown["budget_seconds"] > 0
    json.dumps(shown)


@given(st.integers(0, 2**31), st.floats(1e-6, 1e3))
@settings(max_examples=40, deadline=None)
def test_printed_seconds_add_up_exactly_to_the_printed_step(seed, scale):
    rng = np.random.default_rng(seed)
    names = ("solo", "crowd", "node", "warm", "cold")
    times = dict(zip(names, (scale * rng.lognormal(0, 1, (5, 4))).tolist(), strict=True))
    profile = build(times)
    breakdown = attribute(profile)
    shown = document(breakdown, verdict(breakdown, profile), profile)
    step = Decimal(repr(shown["step_seconds"]))
    assert sum(Decimal(repr(s["seconds"])) for s in shown["stalls"]) == step
    assert float(step) == pytest.approx(breakdown.step_seconds, rel=1e-5)
    rows, total = table_rows(breakdown.stalls)
    number = [Decimal(row.time.split()[0].replace(",", "")) for row in rows]
    assert sum(number) == Decimal(total.time.split()[0].replace(",", ""))
