"""Lightning's simple profiler, as its documentation shows it, with a report of every rank written to a file.

The job is the same training written for Lightning; counted is what a user of Lightning adds. What it says is the top
entry of rank 0's report that contains no other one.
"""

from __future__ import annotations

from bench.peers.answers import Answer, Reading, conclude
from bench.peers.launch import Change, Place, lines_added, median_step, pinned, run_changed

NAME = f"Lightning {pinned('lightning_simple', 'lightning')} simple profiler"
SCRIPT = "lightning_job.py"
CHANGES = (
    Change("import lightning\n", "import lightning\nfrom lightning.pytorch.profilers import SimpleProfiler\n"),
    Change(
        '        strategy="ddp",\n',
        '        strategy="ddp",\n        profiler=SimpleProfiler(dirpath=".", filename="report"),\n',
    ),
)
_FORWARD, _NEXT = "[Strategy]DDPStrategy.training_step", "[_TrainingEpochLoop].train_dataloader_next"
LEAVES = ("[Strategy]DDPStrategy.backward", _FORWARD, _NEXT)
"""The actions of a step that contain no other one."""


def lines() -> int:
    return lines_added(SCRIPT, CHANGES)


def watch(place: Place) -> Answer:
    """Run the job with the profiler on and read its report; raises LaunchError."""
    _, wall = run_changed(place, "lightning_simple", SCRIPT, CHANGES)
    reports = {int(path.stem.rpartition("-")[2]): path.read_text() for path in place.folder.glob("fit-report-*.txt")}
    return read(reports, wall, median_step(place.times))


def read(reports: dict[int, str], wall: float, step: float) -> Answer:
    """The top entry of rank 0's report, and what the reports of all ranks allow."""
    tables = {rank: mean_seconds(report) for rank, report in reports.items()}
    name = max(LEAVES, key=lambda leaf: tables[0].get(leaf, 0.0))
    share = tables[0][name] / tables[0]["run_training_epoch"]
    return Answer(
        quote=f"{name}: {tables[0][name] * 1e3:.1f} ms a step, {share:.0%}",
        says=Reading("input", None, tables[0][name]) if name == _NEXT else Reading("compute"),
        allows=_allows(tables),
        why="waiting for the loader, and each rank's forward pass; the exchange is inside backward",
        wall_seconds=wall,
        step_seconds=step,
    )


def mean_seconds(report: str) -> dict[str, float]:
    """Seconds per batch of every action; those called once are divided by the number of batches."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if line.startswith("|")]
    calls = {row[0]: (int(row[2]), float(row[3])) for row in rows if row[2].isdigit()}
    batches = calls["run_training_batch"][0]
    return {name: total / batches for name, (_, total) in calls.items()}


def _allows(tables: dict[int, dict[str, float]]) -> Reading:
    forward = {rank: table[_FORWARD] for rank, table in tables.items()}
    parts = {
        "compute": min(table["run_training_batch"] for table in tables.values()),
        "input": max(table[_NEXT] for table in tables.values()),
        "slow rank": max(forward.values()) - min(forward.values()),
    }
    step = max(table["run_training_epoch"] for table in tables.values())
    return conclude(step, parts, max(forward, key=lambda rank: forward[rank]))
