"""Published traces of clusters, each by its schema."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from schedules import matrix

from bench.schedule_traces import FORMATS
from stash.core.errors import UserError
from stash.schedule.matrix import PACKED
from stash.schedule.trace_importers import read_trace

RATES = matrix({("m", 1, "V"): 2.0, ("m", 1, "K"): 0.5, ("m", 4, "V"): 7.0, ("n", 1, "V"): 0.0})


PHILLY = [
    {
        "jobid": "a1",
        "vc": "x",
        "submitted_time": "2017-10-07 01:00:00 PST",
        "attempts": [
            {
                "start_time": "2017-10-07 01:00:10",
                "end_time": "2017-10-07 01:01:50",
                "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
            },
            {"start_time": "2017-10-07 02:00:00", "end_time": "None", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
        ],
    },
    {"jobid": "a2", "vc": "x", "submitted_time": "2017-10-07 01:00:00", "attempts": []},
]
TRACES = {
    "alibaba-2020": ("j1,worker,4,Terminated,100,300,600,29,100,V\nj2,worker,1,Failed,1,2,1,1,100,V\n", 4, 200.0),
    "alibaba-2023": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p1,8000,1,1,1000,V,LS,Succeeded,0,90,10\np2,1,1,0,0,,BE,Succeeded,0,5,1\n", 1, 80.0,
    ),
    "philly": (json.dumps(PHILLY), 1, 100.0),
    "helios": (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "h1,u1,vc1,1,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 00:03:00,120,60\n"
        "h2,u1,vc1,0,4,1,COMPLETED,2020-04-01 00:00:00,,,10,0\n", 1, 120.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TRACES)
def test_traces_of_others_by_their_published_schema(tmp_path: Path, kind: str) -> None:
    text, gpus, seconds = TRACES[kind]
    path = tmp_path / "trace"
    path.write_text(text)
    found = read_trace(path, FORMATS[kind], RATES, duration_on="V")
    (one,) = found.jobs
    assert one.gpus == gpus
    assert one.steps == pytest.approx(seconds * RATES.rates[one.model, gpus, "V", PACKED].value)
    assert sum(found.left_out.values()) == 1
    path.write_text("nothing,like,it\n1,2,3\n")
    with pytest.raises(UserError):
        read_trace(path, FORMATS[kind], RATES, duration_on="V")


def test_a_trace_is_the_same_in_every_time_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = {"start_time": "2017-10-29 01:30:00", "end_time": "2017-10-29 03:30:00", "detail": [{"gpus": ["gpu0"]}]}
    log = [{"jobid": "a", "submitted_time": "2017-10-29 01:00:00", "attempts": [attempt]}]
    (tmp_path / "t").write_text(json.dumps(log))
    found = []
    try:
        for zone in ("UTC", "CET-1CEST,M3.5.0,M10.5.0/3"):  # Berlin, where clocks were set back at three
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            found.append(read_trace(tmp_path / "t", FORMATS["philly"], RATES, duration_on="V").jobs)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found[0] == found[1]
    assert found[0][0].steps == pytest.approx(7200 * RATES.rates[found[0][0].model, 1, "V", PACKED].value)


def test_a_job_s_own_type_is_never_taken_for_that_of_the_others(tmp_path: Path) -> None:
    rates = matrix({("a", 1, "V100"): 2.0, ("a", 1, "T4"): 1.0})
    kinds = ("v100", "T4", "MISC", "")
    lines = [f"{kind or 'none'},w,1,Terminated,0,100,1,1,100,{kind}\n" for kind in kinds]
    (tmp_path / "t").write_text("".join(lines))
    found = read_trace(tmp_path / "t", FORMATS["alibaba-2020"], rates, duration_on="V100")
    assert {job.name: job.steps for job in found.jobs} == {"v100/w": 200.0, "T4/w": 100.0, "none/w": 200.0}
    assert found.left_out == {"on MISC, which is no type of the matrix": 1}
