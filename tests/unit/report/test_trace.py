"""The trace of stamped steps: valid by the Trace Event Format's rules, and what was measured."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profile_builder import build

from stash.cli.main import main
from stash.core.artefact import load
from stash.core.records.profile import Profile
from stash.report.trace import render

ROOT = Path(__file__).parents[3]
ARTEFACTS = ("tests/golden/one-node.stash.json", "tests/golden/two-nodes.stash.json",
             "docs/pictures/squeezenet1_0.stash.json", "bench/plan/data/fleet-light.stash.json")  # fmt: skip
STAMPED = {
    "step_seconds": (0.1, 0.2), "seconds": 0.3, "steps": 2, "step_waits": (0.03, 0.0), "step_samples": (8, 7),
    "step_exchanges": (0.02, 0.04), "started": 5.0,
}  # fmt: skip


def events(profile: Profile) -> list[dict[str, Any]]:
    return json.loads(render(profile))["traceEvents"]


def violations(found: list[dict[str, Any]]) -> list[str]:
    """What of the format's rules is broken: fields by phase, names of rows, slices of a row that overlap."""
    wrong, rows = [], defaultdict(list)
    for event in found:
        if not {"ph", "name", "pid", "tid"} <= set(event) or event["ph"] not in ("M", "X"):
            wrong.append(f"fields: {event}")
        elif event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["name"]))
            if event["ts"] < 0 or event["dur"] < 0:
                wrong.append(f"negative: {event}")
        elif event["name"] not in ("process_name", "thread_name") or not event["args"]["name"]:
            wrong.append(f"metadata: {event}")
    named = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    wrong += [f"row without a name: {row}" for row in set(rows) - named]
    for row, slices in rows.items():
        open_until: list[float] = []
        for begin, minus, name in sorted(slices):
            while open_until and open_until[-1] <= begin + 1e-6:
                open_until.pop()
            if open_until and begin - minus > open_until[-1] + 2e-3:  # microseconds
                wrong.append(f"row {row}: {name} at {begin} ends after what it is in")
            open_until.append(begin - minus)
    return wrong


@pytest.mark.parametrize("file", ARTEFACTS)
def test_the_trace_of_a_recorded_profile_keeps_the_rules_and_every_step(file: str) -> None:
    profile = load(ROOT / file)
    found = events(profile)
    assert violations(found) == []
    blocks = [event for event in found if event.get("cat") == "block"]
    assert len(blocks) == len(profile.blocks) > 10
    steps = sum(event["dur"] for event in found if event.get("cat") == "step") / 1e6
    assert steps == pytest.approx(sum(sum(block.step_seconds) for block in profile.blocks), rel=1e-6)


def test_a_step_of_known_stamps_is_drawn_as_they_say() -> None:
    plain = build({"solo": [0.1], "warm": [0.15]})
    blocks = tuple(replace(each, **STAMPED) if each.rung == "warm" else each for each in plain.blocks)
    profile, at = plain.model_copy(update={"blocks": blocks}), 5e6
    found = [e for e in events(profile) if e["tid"] == 1 and e["ph"] == "X" and at <= e["ts"] <= at + 3e5]
    drawn = [(e["name"], round(e["ts"] - at), round(e["dur"])) for e in found if e["cat"] != "block"]
    assert drawn == [
        ("step", 0, 100_000), ("wait for the loader", 0, 30_000), ("wait for the exchange", 80_000, 20_000),
        ("step", 100_000, 200_000), ("wait for the exchange", 260_000, 40_000),
    ]  # fmt: skip
    assert [e["args"] for e in found if e["name"] == "step"] == [{"samples": 8}, {"samples": 7}]
    names = {e["args"]["name"] for e in events(profile) if e["ph"] == "M"}
    assert {"rank 0 (cpu)", "rank 1 (cpu)", "node 0 (node0)"} <= names


def test_slices_that_overlap_are_found_by_the_check_above() -> None:
    found = events(load(ROOT / ARTEFACTS[2]))
    broken = [{**event, "dur": event["dur"] * 3} if event.get("cat") == "step" else event for event in found]
    assert any("ends after" in line for line in violations(broken))


def test_the_command_writes_it_beside_the_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["stash", "report", str(ROOT / ARTEFACTS[0]), "--format", "perfetto"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert json.loads((tmp_path / "one-node.trace.json").read_text())["displayTimeUnit"] == "ms"
