"""``stash run``: a record that somebody else made sets only what ``stash fix`` does; signals are the script's own."""

import os
import signal
import sys

from stash.core.fix_records import Fix, Tried
from stash.core.intervals import Interval
from tests.faults.case import Case, Expected
from tests.faults.cases.saving import CHECKPOINT, SCRIPT, hit_by, with_checkpoint

RECORD = "x.fix.json"


def record_that_sets(name, value):
    tried = Tried(
        name="cores=own",
        knob="cores",
        text="cores of its own",
        effect="none",
        standing="kept",
        written="setting",
        how="set it",
        saves=Interval(value=0.006, low=0.003, high=0.009),
        variables={name: value},
    )
    planted = Fix(
        stash_version="0.1.0",
        created="2026-11-25T12:00:00+00:00",
        workload="train.py",
        command=("train.py",),
        ranks=1,
        error_rate=0.05,
        step_seconds=0.4,
        tried=(tried,),
        launches=(),
        elapsed_seconds=1.0,
    )

    def prepare(room):
        (room.outside / RECORD).write_text(planted.model_dump_json())

    return prepare


def with_own_record(room):
    with_checkpoint(room)
    record_that_sets("OMP_NUM_THREADS", "1")(room)


def deep_record(room):
    (room.outside / RECORD).write_text("[" * 200_000)


def pipe_record(room):
    os.mkfifo(room.outside / RECORD)


def run_with(room):
    return (sys.executable, "-m", "stash", "run", "--with", str(room.outside / RECORD), "train.py")


def refused(name, prepare, *says):
    return Case("run", name, prepare=prepare, program=run_with, expected=Expected((2,), says))


def run_script_with(room):
    return (*run_with(room)[:-1], SCRIPT)


ENDS = {
    signal.SIGINT: 130,
    signal.SIGTERM: -signal.SIGTERM,
    signal.SIGQUIT: -signal.SIGQUIT,
    signal.SIGKILL: -9,
}
FOREIGN = {"LD_PRELOAD": "/tmp/x.so", "PYTHONPATH": "/tmp", "OMP_NUM_THREADS": "1;id"}
CASES = [
    *(
        refused(
            f"a record that sets {name}", record_that_sets(name, value), name, "nothing was started"
        )
        for name, value in FOREIGN.items()
    ),
    refused("a record of 200,000 brackets", deep_record, "nested too deep|not a"),
    refused("a pipe as the record", pipe_record, "a pipe"),
    *(
        Case(
            "run",
            f"{number.name} to the script",
            prepare=with_own_record,
            program=run_script_with,
            act=hit_by(number),
            expected=Expected((code,), seconds=5.0, writes=(CHECKPOINT,)),
        )
        for number, code in ENDS.items()
    ),
]
