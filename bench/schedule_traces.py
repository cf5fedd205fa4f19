"""Jobs of published traces (Alibaba 2020 and 2023, Philly, Helios) as a table that ``stash schedule`` takes.

    python -m bench.schedule_traces TRACE --format philly --throughputs matrix.csv --duration-on V100 > jobs.csv

The traces are not shipped. What they leave open is decided as in ``stash schedule import``.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stash.core.errors import UserError
from stash.schedule.jobs_file import jobs_text
from stash.schedule.matrix_file import read_matrix
from stash.schedule.trace_importers import TraceJob, TraceReader, read_moment, read_number, read_table, read_trace


def alibaba_2020(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``pai_task_table.csv`` of cluster-trace-gpu-v2020: no head; plan_gpu is a percentage of one GPU.

    Columns: job_name, task_name, inst_num, status, start_time, end_time, plan_cpu, plan_mem, plan_gpu, gpu_type. The
    gang is all instances of a task; a job has no submission but its start.
    """
    rows = list(csv.reader(io.StringIO(text)))
    if rows and rows[0] and rows[0][0] == "job_name":
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != 10:
            raise UserError(f"{path}:{number}: {len(row)} columns; pai_task_table.csv has ten")
        name, task, instances, status, start, end, _, _, percent, kind = row
        if status != "Terminated":
            yield f"status {status or 'missing'}"
        elif not start or not end or not percent or not instances:
            yield "missing times or GPUs"
        else:
            where = f"{path}:{number}"
            begin, gpus = read_number(start, where), read_number(percent, where) / 100 * read_number(instances, where)
            yield TraceJob(
                f"{name}/{task}",
                "everyone",
                begin,
                max(1, math.ceil(gpus)),
                read_number(end, where) - begin,
                kind or None,
            )


def alibaba_2023(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``openb_pod_list*.csv`` of cluster-trace-gpu-v2023: num_gpu, gpu_spec, creation_time, deletion_time, …"""
    for number, row in enumerate(read_table(text, path, ("name", "num_gpu", "creation_time", "deletion_time")), 2):
        where = f"{path}:{number}"
        gpus = read_number(row["num_gpu"] or "0", where)
        start = row.get("scheduled_time") or row["creation_time"]
        if gpus < 1:
            yield "no GPUs"
        elif not row["deletion_time"] or not start:
            yield "missing times"
        else:
            kinds = (row.get("gpu_spec") or "").split("|")
            yield TraceJob(
                row["name"],
                row.get("qos") or "everyone",
                read_number(row["creation_time"], where),
                int(gpus),
                read_number(row["deletion_time"], where) - read_number(start, where),
                kinds[0] or None,
            )


def philly(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``cluster_job_log`` of philly-traces: JSON, attempts with times and machines; the work is all attempts'."""
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is not the JSON of Philly's cluster_job_log: {error}") from None
    if not isinstance(found, list):
        raise UserError(f"{path} is not a list of jobs as Philly's cluster_job_log")
    for number, job in enumerate(found):
        where = f"{path}, job {number}"
        if not isinstance(job, dict) or not {"jobid", "attempts", "submitted_time"} <= job.keys():
            raise UserError(f"{where} lacks jobid, attempts or submitted_time")
        seconds, gpus = 0.0, 0
        for attempt in job["attempts"]:
            start, end = (read_moment(plain(attempt.get(name)), where) for name in ("start_time", "end_time"))
            machines = attempt.get("detail") or attempt.get("details") or []
            gpus = max(gpus, sum(len(machine.get("gpus", ())) for machine in machines))
            if start is not None and end is not None:
                seconds += end - start
        submit = read_moment(plain(job["submitted_time"]), where)
        if submit is None or seconds <= 0:
            yield "missing times"
        elif not gpus:
            yield "no GPUs"
        else:
            yield TraceJob(
                str(job["jobid"]), str(job.get("vc") or job.get("user") or "everyone"), submit, gpus, seconds
            )


def helios(text: str, path: Path) -> Iterator[TraceJob | str]:
    """``cluster_log.csv`` of HeliosData: job_id, user, vc, gpu_num, submit_time, start_time, end_time, duration, …"""
    for number, row in enumerate(read_table(text, path, ("job_id", "gpu_num", "submit_time", "duration")), 2):
        where = f"{path}:{number}"
        submit = read_moment(row["submit_time"], where)
        gpus = read_number(row["gpu_num"] or "0", where)
        if gpus < 1:
            yield "no GPUs"
        elif submit is None or not row["duration"] or read_number(row["duration"], where) <= 0:
            yield "missing times"
        else:
            yield TraceJob(row["job_id"], row.get("vc") or row.get("user") or "everyone", submit, int(gpus),
                             read_number(row["duration"], where))  # fmt: skip


def plain(time: Any) -> str:
    """A time of Philly's without PST and PDT: differences are what counts."""
    return re.sub(r" [A-Z]{3,4}$", "", str(time))


FORMATS: Mapping[str, TraceReader] = {
    "alibaba-2020": alibaba_2020,
    "alibaba-2023": alibaba_2023,
    "philly": philly,
    "helios": helios,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--format", choices=FORMATS, required=True)
    parser.add_argument("--throughputs", type=Path, required=True)
    parser.add_argument("--duration-on", metavar="TYPE")
    given = parser.parse_args()
    found = read_trace(given.trace, FORMATS[given.format], read_matrix(given.throughputs), given.duration_on)
    print(jobs_text(found.jobs), end="")
    for why, count in found.left_out.items():
        print(f"left out {count:,} {why}", file=sys.stderr)


if __name__ == "__main__":
    main()
