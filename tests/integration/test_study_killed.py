"""A study whose controller is killed at five moments, on emulated devices, ends with an undisturbed one's cells."""

import json
from functools import partial

import pytest
from characterized import SMALL_MODEL, Controller

import stash

pytestmark = pytest.mark.slow

STUDY = """
workloads: [{name: net, command: [-m, stash.lab.testbed.train_emulated, --model, model.yaml, --batch, "{batch}"]}]
batches: [8, 16, 32]
targets: [{engine: local, devices: 2}]
settings: {budget: 3s, noise: 50, rungs: [solo, crowd]}
"""


def start(folder, study=STUDY):
    folder.mkdir(exist_ok=True)
    (folder / "model.yaml").write_text(SMALL_MODEL)
    return Controller(folder, study)


def events(folder):
    journal = folder / "grid.study" / "journal.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def count(what, number):
    """A moment: the journal has so many of these events."""
    return lambda folder: sum(event["what"] == what for event in events(folder)) >= number


def measuring(number):
    """A moment: a cell after the so-manieth has shown its first round, or is over."""

    def moment(folder):
        logs = (folder / "grid.study" / "cells").glob("*/output.log")
        return sum("round" in log.read_text() for log in logs) > number

    return moment


MOMENTS = {
    "something is about to begin": count("opened", 1),
    "the first cell measures": measuring(0),
    "the first cell is over": count("ended", 1),
    "the second cell begins": count("started", 2),
    "the last cell measures": measuring(2),
}


def cells(folder):
    """Every finished cell by its id, with the rungs of its artefact in the study's folder."""
    done = [str(event["cell"]) for event in events(folder) if event.get("ending") == "done"]
    assert len(done) == len(set(done)), "a finished cell was run again"
    found = {
        id: stash.load(folder / "grid.study" / "cells" / id / "profile.stash.json") for id in done
    }
    return {id: profile.settings.rungs for id, profile in found.items()}


def test_a_study_killed_at_five_moments_ends_with_the_cells_of_an_undisturbed_one(
    tmp_path,
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start(whole).wait_for_end()
    for moment in MOMENTS.values():
        controller = start(killed)
        controller.wait_until(partial(moment, killed))
        controller.kill()
    start(killed).wait_for_end()
    assert cells(killed) == cells(whole)
    assert len(cells(whole)) == 3
    kept = [
        sorted(path.name for path in (each / "grid.study" / "results").rglob("*.stash.json"))
        for each in (whole, killed)
    ]
    assert [len(names) for names in kept] == [3, 3]
