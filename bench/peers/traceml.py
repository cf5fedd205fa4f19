"""TraceML (``traceml-ai``) as its README shows it for a custom loop: ``init``, ``trace_step``, ``traceml run``.

Reads the final summary that TraceML writes: its verdict is what it says, its phase times per rank are its numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.peers.answers import Answer, Reading, conclude
from bench.peers.jobs import RANKS
from bench.peers.launch import Change, Place, apply_changes, pinned_version, python, run

NAME = f"TraceML {pinned_version('traceml', 'traceml-ai')}"
SCRIPT = "job.py"
CHANGES = (
    Change("import torch\nimport", "import torch\nimport traceml_ai as traceml\nimport"),
    Change("def main():\n", 'traceml.init(mode="auto")\n\n\ndef main():\n'),
    Change(
        """            optimizer.zero_grad()
            loss = model(inputs).sum()
            loss.backward()
            optimizer.step()
""",
        """            with traceml.trace_step(model):
                optimizer.zero_grad()
                loss = model(inputs).sum()
                loss.backward()
                optimizer.step()
""",
    ),
)


def watch(place: Place) -> Answer:
    """Run the job under ``traceml run`` and read its summary; raises LaunchError."""
    interpreter = python("traceml")
    script = place.folder / "train.py"
    script.write_text(apply_changes(SCRIPT, CHANGES))
    nodes = place.bed.nodes

    def command(node: int, port: int) -> list[str]:
        words = [
            str(Path(interpreter).parent / "traceml"),
            "run",
            str(script),
            "--nproc-per-node",
            str(RANKS // nodes),
            "--run-name",
            "job",
            "--logs-dir",
            str(place.folder / "logs"),
            "--master-port",
            str(port),
        ]
        if nodes > 1:
            words += [
                "--nnodes",
                str(nodes),
                "--node-rank",
                str(node),
                "--master-addr",
                place.bed.address(0),
            ]
            words += ["--aggregator-bind-host", "0.0.0.0"]
        return [*words, "--args", *place.options()]

    _, wall = run(place, command)
    found = json.loads((place.folder / "logs/job/final_summary.json").read_text())
    return read(found, wall)


def read(summary: dict[str, Any], wall: float) -> Answer:
    """TraceML's primary diagnosis, and what its table of phases and ranks allows."""
    found = summary["primary_diagnosis"]
    rows = {
        int(rank): row["metrics"] for rank, row in summary["step_time"]["groups"]["rows"].items()
    }
    return Answer(
        quote=f"{found['status']}: {found['summary']}",
        says=_says(found["kind"], summary["step_time"]),
        allows=_allows(rows),
        wall_seconds=wall,
    )


def _says(kind: str, section: dict[str, Any]) -> Reading:
    diagnosis, average = section["diagnosis"], section["global"]["average"]
    if kind == "INPUT_BOUND":
        return Reading("input", None, average["input_wait_ms"] / 1e3)
    if kind == "COMPUTE_BOUND":
        return Reading("compute", None, average["compute_ms"] / 1e3)
    if kind == "NO_CLEAR_PERFORMANCE_BOTTLENECK":
        return Reading("compute")
    if kind.endswith("STRAGGLER"):
        cause = "input" if kind == "INPUT_STRAGGLER" else "slow rank"
        return Reading(cause, diagnosis["ranks"][0], diagnosis["evidence"]["visible_cost_ms"] / 1e3)
    return Reading()


def _allows(rows: dict[int, dict[str, float]]) -> Reading:
    """Backward passes end together: the rank that waits longest for its input, or whose forward pass takes longest,
    holds up the others.
    """
    forward = {rank: row["forward_ms"] for rank, row in rows.items()}
    parts = {
        "compute": min(row["compute_ms"] for row in rows.values()),
        "input": max(row["input_wait_ms"] for row in rows.values()),
        "slow rank": max(forward.values()) - min(forward.values()),
    }
    seconds = {cause: milliseconds / 1e3 for cause, milliseconds in parts.items()}
    step = max(row["step_time_ms"] for row in rows.values()) / 1e3
    return conclude(step, seconds, max(forward, key=lambda rank: forward[rank]))
