"""From a profile and launches to the record and the patch; launches are played."""

import time
from pathlib import Path
from types import SimpleNamespace

from searches import LOADER

from stash.core.artefact import load
from stash.fix import command
from stash.measure.launcher import trials
from stash.measure.launcher.trials import TrialRun

GOLDEN = Path(__file__).parents[2] / "golden" / "one-node.stash.json"
SCRIPT = "loader = DataLoader(data, num_workers=0)  # as it came\n"


def step_of(settings):
    """Four workers save 30 of 100 ms."""
    return 0.07 if settings.get("loader", {}).get("num_workers") == 4 else 0.1


class PlayedTrials:
    """Launches of a script of one line, which trains the same whatever is set."""

    script: Path

    def __init__(self, session, until, bare):
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def run_trial(self, settings, variables, seconds, steps):
        self.number += 1
        call = {"kind": "loader", "file": str(self.script), "line": 1, "end_line": 1}
        place = {"column": 9, "end_column": 40, "values": LOADER, "calls": 1, "function": "f"}
        evidence = {
            "losses": [(1.0).hex()] * 10,
            "batches": list(range(10)),
            "epochs": [],
            "sites": {"mine": call | place},
            "trains": "mine",
            "threads": 1,
            "batches_per_step": 1,
            "update_seconds": 0.001,
            "evaluations": {},
            "sets_threads": False,
        }
        step = step_of(settings) * (1 + 1e-3 * (self.number % 3))
        return TrialRun(step, steps=20, elapsed_seconds=0.5, evidence=(evidence, evidence))

    def take_turns(self, rungs, rounds, settings, variables):
        rows = [
            {at: step_of(rung) * (1 + 1e-3 * ((at + number) % 3)) for at, rung in enumerate(rungs)}
            for number in range(rounds)
        ]
        return rows, TrialRun(None, steps=9, elapsed_seconds=1.0)


def test_what_a_search_keeps_is_in_its_record_and_its_patch(tmp_path, monkeypatch, capsys):
    # GIVEN a profile, and launches in which four workers are faster
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PlayedTrials, "script", script, raising=False)
    monkeypatch.setattr(trials, "Trials", PlayedTrials)
    measurement = SimpleNamespace(
        seconds_spent=lambda: 1.0, cluster=SimpleNamespace(engine="local")
    )
    job = SimpleNamespace(
        title="train.py", kind="script", target=str(script), kept_command=("train.py",)
    )
    session = SimpleNamespace(measurement=measurement, job=job)
    options = SimpleNamespace(budget=300.0, quiet=False, try_only=("workers",), allow=())
    result = SimpleNamespace(profile=load(GOLDEN))
    # WHEN they are searched
    record, patch = command._try_changes(session, result, options, time.monotonic())
    # THEN these are kept, proven, and written where the call stands
    assert [each.name for each in record.kept] == ["workers=4"]
    assert (record.final_rounds, record.repeats, record.proof.holds) == (3, True, True)
    assert "+loader = DataLoader(data, num_workers=4)  # as it came\n" in patch.make_diff()
    assert [each.stage for each in record.launches if each.changes == ("workers=4",)][-3:] == [
        "final"
    ] * 3
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("  timing the unmodified script")
    assert lines[-1].startswith("  training 200 steps with 4 loader workers (")
