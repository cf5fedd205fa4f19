"""Invented artefacts that pages show, in round numbers: ``python tests/support/made_up.py`` writes docs/profiles.

The records of Stash's own code, fed with numbers that a person chose: a pipeline with a slow stage, a run that is
watched while one rank's input grows, a search of ``stash fix``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from profile_builder import build
from watched_rings import STEP, Run

from stash.core import artefact
from stash.core.records.parallel import GroupUse, MeshAxis, PipelineSchedule, StagePasses
from stash.core.records.profile import Profile

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/profiles"
MICROBATCHES = 8
FORWARD, BACKWARD = 0.010, 0.020
SLOW = {2: 1.5}
"""Stages that take so many times as long as the others."""


def pipeline_job() -> Profile:
    """Four stages on four GPUs, eight microbatches, 480 ms a step; stage 2 takes half as long again as the others.

    Passes of the others are 240 ms, of stage 2 360, 270 in the mean. GPipe ends them after 150 + 300 ms, so ranks
    idle 180 ms in the mean; messages are 10 ms late, and 20 ms of the step are the optimizer's.
    """
    schedule = PipelineSchedule(name="ScheduleGPipe", stages=4, ranks=4, microbatches=MICROBATCHES)
    waits = {"pipeline/recv": 0.190}
    profile = build(
        {"cluster": [0.480, 0.478, 0.482]},
        ranks=4,
        nodes=1,
        device="cuda",
        batch=32,
        skipped=dict.fromkeys(
            ("resident", "solo", "crowd", "node"), "the model is divided among ranks"
        ),
        workload={
            "command": ("pretrain.py",),
            "name": "pretrain.py",
            "pipeline": schedule,
            "mesh": (MeshAxis(name="pp", ranks=4, across_nodes=False),),
            "groups": (
                GroupUse(
                    name="pipeline", kind="recv", ranks=4, across_nodes=False, calls=16, bytes=2**22
                ),
            ),
        },
    )
    passes = tuple(_passes(rank) for rank in range(4))
    blocks = tuple(
        replace(block, group_waits={key: seconds * block.steps for key, seconds in waits.items()})
        for block in profile.blocks
    )
    return profile.model_copy(update={"passes": passes, "blocks": blocks})


def _passes(rank: int) -> StagePasses:
    """Three steps of one stage: all forward passes, then all backward passes."""
    names = [f"{rank}{kind}{number}" for kind in "FB" for number in range(MICROBATCHES)]
    slower = SLOW.get(rank, 1.0)
    seconds = [slower * (FORWARD if "F" in name else BACKWARD) for name in names]
    return StagePasses(
        rank=rank, round=0, rung="cluster", passes=(*names, "rest"), seconds=(*seconds, 0.0) * 3
    )


def write_watched_run(path: Path) -> None:
    """Five minutes of two ranks; after two, rank 1's input takes 40 ms more a step, for one and a half minutes."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        run.train(120)
        run.train(90, late=lambda rank: 0.04 * rank)
        run.train(90)
        lines = [json.loads(line) for line in run.path.read_text().splitlines()]
    windows = [line for line in lines if line["kind"] == "window"]
    late = windows[0]["began"] - lines[0]["began"] - STEP
    for window in windows:  # the rings' clock is the machine's, the watcher's the test's
        window["began"], window["machines"] = round(window["began"] - late, 3), []
    path.write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines))


def write_search(path: Path) -> None:
    """The golden record of ``stash fix``, without what only tests need."""
    found = json.loads((ROOT / "tests/golden/schema-1.fix.json").read_text())
    shown = {"workers=6", "pin", "bfloat16", "bad"}
    found["tried"] = [change for change in found["tried"] if change["name"] in shown]
    for change in found["tried"]:
        if change["name"] == "bad":
            change.update(name="cache", knob="cache", text="each sample kept in memory")
    found.update(step_seconds=0.412, after_seconds=0.354)
    found["together"] = {"value": 0.0581, "low": 0.0541, "high": 0.0621, "repetitions": 1}
    path.write_text(json.dumps(found))


def main() -> None:
    artefact.save(pipeline_job(), FOLDER / "pipeline.stash.json")
    write_watched_run(FOLDER / "train.watch.jsonl")
    write_search(FOLDER / "train.fix.json")


if __name__ == "__main__":
    sys.exit(main())
