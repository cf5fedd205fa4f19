"""PyTorch Profiler as its recipe shows it, and Holistic Trace Analysis on the traces of all ranks.

What it says is the top entry of the profiler's own table and whatever HTA's documented analyses answer (or the exact
error of the first that fails). Its numbers are the durations of the events it recorded, on every rank.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from bench.peers.answers import Answer, Reading, conclude
from bench.peers.launch import (
    HERE,
    Change,
    LaunchError,
    Place,
    last_line,
    pinned_version,
    python,
    run_changed,
)

NAME = f"PyTorch Profiler + HTA {pinned_version('torch_profiler_hta', 'HolisticTraceAnalysis')}"
SCRIPT = "job.py"
ACTIVE_STEPS = 20
_FAILURE = re.compile(r"\w+(Error|Exception)\b")
CHANGES = (
    Change(
        "    seconds, last = [], time.perf_counter()\n",
        f"""    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=5, warmup=2, active={ACTIVE_STEPS}, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler("traces", f"rank{{rank}}", use_gzip=True),
    )
    profiler.start()
    seconds, last = [], time.perf_counter()
""",
    ),
    Change(
        "            optimizer.step()\n",
        "            optimizer.step()\n            profiler.step()\n",
    ),
    Change(
        "    dist.destroy_process_group()\n",
        """    profiler.stop()
    if rank == 0:
        print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=80))
    dist.destroy_process_group()
""",
    ),
)


def watch(place: Place) -> Answer:
    """Run the profiled job, then HTA's analyses on its traces; raises LaunchError."""
    output, wall = run_changed(place, "torch_profiler_hta", SCRIPT, CHANGES)
    analysis = [
        python("torch_profiler_hta"),
        str(HERE / "hta_report.py"),
        str(place.folder / "traces"),
    ]
    done = subprocess.run(analysis, capture_output=True, text=True, check=False)
    (place.folder / "hta.txt").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        raise LaunchError(last_line(done.stderr))
    found = json.loads(done.stdout.splitlines()[-1])
    return read(output, found, place.bed.nodes, wall + found["seconds"])


def read(output: str, found: dict[str, Any], nodes: int, wall: float) -> Answer:
    """The profiler's top entry, what HTA answered, and what the loader's and gloo's events of all ranks allow."""
    name, share = top_entry(output)
    cause = _cause(name)
    failures = [
        f"{call}: {text}" for call, text in found["answers"].items() if _FAILURE.match(text)
    ]
    hta = (
        f"HTA fails, {len(failures)} of {len(found['answers'])}: {failures[0]}"
        if failures
        else "HTA answers"
    )
    return Answer(
        quote=f"{name} {share} of self CPU time; {hta}",
        says=Reading(cause, None, None if cause == "compute" else found["events"]["0"].get(name)),
        allows=_allows({int(rank): events for rank, events in found["events"].items()}, nodes),
        wall_seconds=wall,
    )


def top_entry(output: str) -> tuple[str, str]:
    """Name and share of the first row of the profiler's table that is not the step itself."""
    rows = iter(output.splitlines())
    for row in rows:
        if "Self CPU %" in row:
            break
    for row in rows:
        words = re.split(r"\s{2,}", row.strip())
        if len(words) > 2 and not words[0].startswith(("-", "ProfilerStep")):
            return words[0], words[1]
    raise LaunchError("the profiler printed no table")


def _cause(name: str) -> str:
    if name.startswith("enumerate(DataLoader)"):
        return "input"
    return "communication" if name.startswith(("gloo:", "c10d::")) else "compute"


def _allows(events: dict[int, dict[str, float]], nodes: int) -> Reading:
    def total(prefix: str, rank: int) -> float:
        return sum(seconds for name, seconds in events[rank].items() if name.startswith(prefix))

    exchange = {rank: total("gloo:", rank) for rank in events}
    step = max(total("ProfilerStep", rank) for rank in events)
    parts = {
        "input": max(total("enumerate(DataLoader)", rank) for rank in events),
        "network" if nodes > 1 else "interconnect": min(exchange.values()),
        "slow rank": max(exchange.values()) - min(exchange.values()),
    }
    parts["compute"] = step - sum(parts.values())
    return conclude(step, parts, min(exchange, key=lambda rank: exchange[rank]))
