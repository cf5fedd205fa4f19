"""Runs HTA's documented analyses on a folder of traces; the last line printed is JSON.

Runs inside the tool's own virtual environment: ``hta_report.py TRACES``. An analysis that fails is reported with its
exact error. Knows nothing of faults.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hta.trace_analysis import TraceAnalysis


def main(folder: Path) -> None:
    began = time.monotonic()
    answers: dict[str, str] = {}
    traces = sorted(folder.glob("*.json.gz"))
    files = {rank_of(path): str(path) for path in traces}
    analyzer = TraceAnalysis(trace_files=files, trace_dir=str(folder))
    analyses: dict[str, Callable[[], Any]] = {
        "get_temporal_breakdown": lambda: analyzer.get_temporal_breakdown(visualize=False),
        "get_comm_comp_overlap": lambda: analyzer.get_comm_comp_overlap(visualize=False),
        "get_idle_time_breakdown": lambda: analyzer.get_idle_time_breakdown(visualize=False),
        "get_potential_stragglers": lambda: analyzer.get_potential_stragglers(num_candidates=1),
        "get_gpu_kernel_breakdown": lambda: analyzer.get_gpu_kernel_breakdown(visualize=False),
        "critical_path_analysis": lambda: critical_path(analyzer),
    }
    for name, analysis in analyses.items():
        try:
            answers[name] = " ".join(str(analysis()).split())[:400]
        except Exception as error:  # whatever it is, it is this analysis's answer
            answers[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    events = {rank: seconds_per_step(Path(path)) for rank, path in files.items()}
    print(json.dumps({"seconds": time.monotonic() - began, "answers": answers, "events": events}))


def critical_path(analyzer: TraceAnalysis) -> Any:
    graph, _ = analyzer.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=2)
    return graph.summary()


def rank_of(path: Path) -> int:
    return int(path.name.split(".")[0].removeprefix("rank"))


def seconds_per_step(path: Path) -> dict[str, float]:
    """Seconds per step under each event's name, of one rank's trace (``dur`` is in microseconds)."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = {
        event["name"] for event in events if str(event.get("name", "")).startswith("ProfilerStep#")
    }
    totals: dict[str, float] = {}
    for event in events:
        if event.get("ph") == "X":
            name = "ProfilerStep" if event["name"] in steps else event["name"]
            totals[name] = totals.get(name, 0.0) + event["dur"] / 1e6 / len(steps)
    return totals


if __name__ == "__main__":
    main(Path(sys.argv[1]))
