"""The report a person sees of a profile, whole, against golden files."""

from __future__ import annotations

import io
import json
import re

import pytest
from golden_numbers import copy_close_numbers
from golden_profiles import GOLDEN, PROFILES, outputs, with_facts
from profile_builder import build
from rich.console import Console
from rich.style import Style

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import SampleCounts
from stash.core.artefact import load
from stash.report.profile_page import page, table_rows
from stash.ui.stall_lines import StallTable
from stash.ui.terminal import render

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def report(profile, width=80, colour=False) -> str:
    breakdown = attribute(profile)
    return render(page(breakdown, verdict(breakdown, profile), profile), width, colour)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("ending", ["txt", "json"])
def test_stash_says_of_a_golden_profile_what_it_always_said(name, ending):
    expected = (GOLDEN / f"{name}.expected.{ending}").read_text(encoding="utf-8")
    text = outputs(load(GOLDEN / f"{name}.stash.json"))[ending]
    assert copy_close_numbers(text, expected) == expected


@pytest.mark.parametrize(
    ("least", "most", "batch"),
    [(1024, 4050, "1,024 to 4,050"), (99.56, 100.4, "99.6 to 100"), (4096, 4096, "4096")],
)
def test_batches_are_written_without_exponents(least, most, batch):
    profile = build({"solo": [0.1] * 3, "crowd": [0.2] * 3})
    counts = SampleCounts(per_rung={}, least=least, most=most)
    breakdown = attribute(profile).model_copy(update={"samples": counts})
    assert f"batch {batch} per device" in page(breakdown, verdict(breakdown, profile), profile).subtitle


@pytest.mark.parametrize("name", PROFILES)
def test_a_golden_profile_still_loads_to_what_was_saved(name):
    assert load(GOLDEN / f"{name}.stash.json") == PROFILES[name]()


def test_golden_profiles_of_every_schema_load():
    assert load(GOLDEN / "schema-2.stash.json") == load(GOLDEN / "one-node.stash.json")
    assert load(GOLDEN / "schema-3.stash.json") == with_facts()


def test_facts_for_prediction_change_what_advice_promises_and_nothing_of_what_was_measured():
    without, with_them = (
        json.loads(outputs(load(GOLDEN / f"{name}.stash.json"))["json"]) for name in ("one-node", "schema-3")
    )
    assert len(without["verdict"].pop("next_steps")) == len(with_them["verdict"].pop("next_steps"))
    assert without == with_them


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
    for kept in (Style.parse, Style._add):  # rich keeps the codes of the first console that used a style
        kept.cache_clear()
    text = report(PROFILES["two-nodes"](), colour=True)
    assert len(set(re.findall(r"\x1b\[([\d;]+)m■", text))) == 6


def test_unknown_is_shown_with_its_reason_and_never_as_zero():
    line = next(line for line in report(PROFILES["one-node"]()).splitlines() if "network  " in line)
    assert line.split(maxsplit=1) == ["network", "unknown: one node"]


def test_a_stall_within_the_noise_and_an_unknown_interval_say_so():
    noisy = build({"solo": [0.10, 0.11, 0.10], "crowd": [0.09, 0.11, 0.10]})
    assert "(within noise)" in report(noisy)
    assert "+/- unknown" in report(build({"solo": [0.1], "crowd": [0.2]}))


def test_an_interval_too_narrow_to_print_is_not_printed_as_zero():
    steady = report(build({"solo": [0.1] * 3, "crowd": [0.2] * 3}))
    assert "+/- 2.2" in steady  # what another launch may make of it
    assert "+/- 0.0" not in steady


def test_the_table_can_be_shown_while_measuring():
    profile = build({"solo": [0.1, 0.1], "crowd": [0.15, 0.15]})
    breakdown = attribute(profile)
    out = io.StringIO()
    rows, total = table_rows(breakdown.stalls, breakdown.skipped, breakdown.step)
    Console(file=out, width=80).print(StallTable((*rows, total)))
    assert "100.0 ms ± 1.9" in out.getvalue()
    assert "150.0 ms" in out.getvalue()
