"""The report a person sees and the document a program reads, whole, against golden files."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
from golden_profiles import GOLDEN, PROFILES, outputs
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_builder import build
from rich.console import Console

from stash.base.errors import StashError
from stash.cli.show import show
from stash.derive.advise import verdict
from stash.derive.stalls import attribute
from stash.keep.artefact import load, save
from stash.show.profile.contract import document
from stash.show.profile.terminal import render, stall_table
from stash.show.profile.view import table_rows, view

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def report(profile, width=80, colour=False) -> str:
    breakdown = attribute(profile)
    return render(view(breakdown, verdict(breakdown, profile), profile), width, colour)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("ending", ["txt", "json"])
def test_stash_says_of_a_golden_profile_what_it_always_said(name, ending):
    expected = (GOLDEN / f"{name}.expected.{ending}").read_text(encoding="utf-8")
    assert outputs(load(GOLDEN / f"{name}.stash.json"))[ending] == expected


@pytest.mark.parametrize("name", PROFILES)
def test_a_golden_profile_still_loads_to_what_was_saved(name):
    assert load(GOLDEN / f"{name}.stash.json") == PROFILES[name]()


def test_show_prints_the_text_or_with_json_the_document(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(GOLDEN / "one-node.stash.json")
    assert capsys.readouterr().out == (GOLDEN / "one-node.expected.txt").read_text(encoding="utf-8")
    show(GOLDEN / "one-node.stash.json", json=True)
    assert capsys.readouterr().out == (GOLDEN / "one-node.expected.json").read_text(encoding="utf-8")


def test_show_refuses_a_profile_without_a_complete_round(tmp_path):
    profile = build({"solo": [0.1], "crowd": [0.1]})
    save(profile.model_copy(update={"blocks": profile.blocks[:1]}), tmp_path / "a.stash.json")
    with pytest.raises(StashError, match="no complete round"):
        show(tmp_path / "a.stash.json")


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
    assert shown["skipped"][1] == {"name": "network", "why": "one node"}


def test_the_json_has_the_keys_of_the_contract_in_its_order():
    profile = PROFILES["two-nodes"]()
    breakdown = attribute(profile)
    shown = document(breakdown, verdict(breakdown, profile))
    contract = [
        "schema",
        "step_seconds",
        "samples_per_second",
        "rounds",
        "world_size",
        "nodes",
        "stalls",
        "skipped",
    ]
    contract += ["paper", "stability", "verdict"]
    assert list(shown)[: len(contract)] == contract
    assert set(shown["stalls"][0]) >= {"name", "seconds", "low", "high", "share"}
    assert list(shown["paper"]) == ["interconnect_pct", "network_pct", "prep_pct", "fetch_pct"]
    assert list(shown["stability"]) == ["ok", "warnings"]
    assert list(shown["verdict"]) == ["stall", "text", "next_steps"]


@given(st.integers(0, 2**31), st.floats(1e-6, 1e3))
@settings(max_examples=40, deadline=None)
def test_printed_seconds_add_up_exactly_to_the_printed_step(seed, scale):
    rng = np.random.default_rng(seed)
    names = ("solo", "crowd", "node", "warm", "cold")
    times = dict(zip(names, (scale * rng.lognormal(0, 1, (5, 4))).tolist(), strict=True))
    profile = build(times)
    breakdown = attribute(profile)
    shown = document(breakdown, verdict(breakdown, profile))
    step = Decimal(repr(shown["step_seconds"]))
    assert sum(Decimal(repr(s["seconds"])) for s in shown["stalls"]) == step
    assert float(step) == pytest.approx(breakdown.step_seconds, rel=1e-5)
    rows, total = table_rows(breakdown.stalls)
    number = [Decimal(row.time.split()[0].replace(",", "")) for row in rows]
    assert sum(number) == Decimal(total.time.split()[0].replace(",", ""))


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("name", PROFILES)
def test_no_line_is_wider_than_the_terminal(width, colour, name):
    text = ESCAPE.sub("", report(PROFILES[name](), width, colour))
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_long_name_is_wrapped_not_cut():
    profile = build({"solo": [0.1], "crowd": [0.2]}, workload={"name": "/home/someone/" + "x" * 120 + "/train.py"})
    text = report(profile)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "/train.py" in text


def test_without_colour_the_report_is_plain_ascii():
    text = report(PROFILES["two-nodes"]())
    assert text.isascii()
    assert "\x1b" not in text


def test_with_colour_every_measured_stall_has_its_own():
    text = report(PROFILES["two-nodes"](), colour=True)
    assert len(set(re.findall(r"38;5;(\d+)m■", text))) == 6


def test_unknown_is_shown_with_its_reason_and_never_as_zero():
    line = next(line for line in report(PROFILES["one-node"]()).splitlines() if "network  " in line)
    assert line.split(maxsplit=1) == ["network", "unknown: one node"]


def test_a_stall_within_the_noise_and_an_unknown_interval_say_so():
    noisy = build({"solo": [0.10, 0.11, 0.10], "crowd": [0.09, 0.11, 0.10]})
    assert "(within noise)" in report(noisy)
    assert "+/- unknown" in report(build({"solo": [0.1], "crowd": [0.2]}))


def test_an_interval_too_narrow_to_print_is_not_printed_as_zero():
    steady = report(build({"solo": [0.1] * 3, "crowd": [0.2] * 3}))
    assert "+/- <0.1" in steady
    assert "+/- 0.0" not in steady


def test_the_table_can_be_shown_while_measuring():
    profile = build({"solo": [0.1, 0.1], "crowd": [0.15, 0.15]})
    breakdown = attribute(profile)
    out = io.StringIO()
    Console(file=out, width=80).print(stall_table(view(breakdown, verdict(breakdown, profile), profile)))
    assert "100.0 ms ± <0.1" in out.getvalue()
    assert "150.0 ms" in out.getvalue()


def test_reading_a_profile_needs_no_torch():
    modules = "stash.cli.show, stash.keep.artefact, stash.show.profile.contract, stash.show.profile.terminal"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
