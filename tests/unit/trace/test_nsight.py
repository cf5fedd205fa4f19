"""Reports of Nsight Systems, written by hand into its tables: the same answer as from a trace of the same events."""

import sqlite3
from contextlib import closing

import pytest
from hand_traces import (
    ALL_REDUCE,
    GEMM,
    TWO_STEPS,
    kernel,
    launch,
    note,
    per_step,
    two_steps,
)

from stash.core.errors import UserError
from stash.trace.command import read_job

PROCESS = 4242
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, "end", deviceId, streamId, correlationId, globalPid, demangledName);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, "end", deviceId, streamId, correlationId, globalPid, copyKind);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", globalTid, correlationId, nameId);
CREATE TABLE NVTX_EVENTS (start, "end", eventType, globalTid, text, textId);
CREATE TABLE OSRT_API (start, "end", globalTid, nameId);
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'secret-host');
"""


def report(path, *processes, more=""):
    """Events of processes on devices 0, 1, … as Nsight exports them: in nanoseconds, since the first of them."""
    texts = {}

    def text(name):
        return texts.setdefault(name, len(texts) + 1)

    with closing(sqlite3.connect(path)) as base:
        base.executescript(SCHEMA)
        for device, events in enumerate(processes):
            pid = PROCESS - device
            for event in events:
                start = round(event["ts"] * 1000)
                kind = event["cat"]
                name = event["name"]
                stop = start + round(event["dur"] * 1000)
                link = event.get("args", {}).get("correlation")
                thread = (pid << 24) + pid + event["tid"] - 1
                rows = {
                    "kernel": (
                        "CUPTI_ACTIVITY_KIND_KERNEL",
                        (device, event["tid"], link, pid << 24, text(name)),
                    ),
                    "gpu_memcpy": (
                        "CUPTI_ACTIVITY_KIND_MEMCPY",
                        (device, event["tid"], link, pid << 24, 1),
                    ),
                    "cuda_runtime": (
                        "CUPTI_ACTIVITY_KIND_RUNTIME",
                        (thread, link, text(f"{name}_v7000")),
                    ),
                    "user_annotation": ("NVTX_EVENTS", (59, thread, name, None)),
                    "osrt": ("OSRT_API", (thread, text(name))),
                }
                table, values = rows[kind]
                marks = ", ".join("?" * (len(values) + 2))
                base.execute(f"INSERT INTO {table} VALUES ({marks})", (start, stop, *values))
        base.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            [(number, name) for name, number in texts.items()],
        )
        base.executescript(more)
    return path


def test_a_report_is_told_as_a_trace_of_the_same_events(tmp_path):
    trace = read_job([str(report(tmp_path / "report.sqlite", two_steps()))])
    assert per_step(trace) == TWO_STEPS
    assert (trace.tool, trace.backend, trace.nodes) == ("Nsight Systems", "nccl", 1)
    assert "secret-host" not in trace.model_dump_json()
    assert set(trace.unknown) == {"contention", "bubble"}  # one rank; how many there are is unknown


def test_graphs_whose_kernels_are_unknown_are_compute_and_said(tmp_path):
    more = (
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, streamId, correlationId, globalPid); "
        f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (60000, 65000, 0, 7, 1, {PROCESS << 24})"
    )
    trace = read_job([str(report(tmp_path / "a.sqlite", two_steps(), more=more))])
    assert per_step(trace)[0]["compute"] == 35.0
    assert any("--cuda-graph-trace=node" in text for text in trace.warnings)


def renamed(*names):
    events = two_steps()
    events[0]["name"], events[8]["name"] = names
    return events


@pytest.mark.parametrize(
    "names",
    [
        ("step 1", "step 2"),
        ("iteration_7", "iteration_8"),
        ("Train Step", "Train Step"),
        ("iter1", "iter2"),
    ],
)
def test_ranges_of_steps_are_known_by_their_names(names, tmp_path):
    assert per_step(read_job([str(report(tmp_path / "a.sqlite", renamed(*names)))])) == TWO_STEPS


def test_names_that_are_no_steps_make_the_whole_report_one(tmp_path):
    trace = read_job(
        [str(report(tmp_path / "a.sqlite", renamed("optimizer.step", "stepping_stone 3")))]
    )
    assert len(trace.steps) == 1


def meeting(start, stop, shift):
    return [
        note("step 3", shift, shift + 130),
        launch(shift + 1, 1),
        launch(shift + 2, 2),
        kernel(GEMM, shift, shift + start, 1),
        kernel(ALL_REDUCE, shift + start, shift + stop, 2, stream=8),
    ]


def test_processes_of_one_report_are_ranks_in_the_order_of_their_devices(tmp_path):
    trace = read_job([str(report(tmp_path / "a.sqlite", meeting(10, 110, 0), meeting(80, 110, 5)))])
    assert [
        {name: round(value * 1e6) for name, value in rank.parts.items() if value}
        for rank in trace.ranks
    ] == [
        {"compute": 10, "contention": 70, "exchange": 30},
        {"compute": 80, "exchange": 30},
    ]
    assert any("numbered in the order of files, and of devices" in text for text in trace.warnings)


def test_pauses_are_placed_in_calls_of_the_system_by_the_first_thread(tmp_path):
    events = [
        note("step 1", 0, 5000),
        launch(5, 1),
        kernel(GEMM, 10, 40, 1),
        note("poll", 50, 4000, kind="osrt"),
        note("futex", 0, 5000, thread=2, kind="osrt"),
        launch(4500, 2),
        kernel(GEMM, 4510, 4600, 2),
    ]
    loop = read_job([str(report(tmp_path / "a.sqlite", events))]).part("loop")
    assert loop is not None
    assert loop.place == "poll"


DAMAGES = {
    "text where a time belongs": "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('soon', 9, 0, 7, 1, 0, 1)",
    "an end before its start": "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9, 2, 0, 7, 1, 0, 1)",
    "a time of no clock": "INSERT INTO NVTX_EVENTS VALUES (9, 9000000000000000000, 59, 1, 'x', NULL)",
}


@pytest.mark.parametrize("how", DAMAGES)
def test_rows_without_times_are_left_out_and_said(how, tmp_path):
    trace = read_job([str(report(tmp_path / "a.sqlite", two_steps(), more=DAMAGES[how]))])
    assert per_step(trace)[0] == TWO_STEPS[0]
    assert any("1 rows of" in text and "have no times" in text for text in trace.warnings)


HARMLESS = {
    "an open range": "INSERT INTO NVTX_EVENTS VALUES (9, NULL, 60, 1, 'x', NULL)",
    "texts where numbers belong": "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (90, 91, 'x', 'y', 'z')",
    "bytes as a name": "INSERT INTO NVTX_EVENTS VALUES (9, 10, 59, 1, x'ff00ff', NULL)",
    "no names": "DROP TABLE TARGET_INFO_SYSTEM_ENV",
    "a table less": "DROP TABLE OSRT_API",
    "a column less": "ALTER TABLE OSRT_API DROP COLUMN nameId",
}


@pytest.mark.parametrize("how", HARMLESS)
def test_what_a_report_may_lack_changes_nothing(how, tmp_path):
    assert (
        per_step(read_job([str(report(tmp_path / "a.sqlite", two_steps(), more=HARMLESS[how]))]))
        == TWO_STEPS
    )


def _rewritten(change):
    return lambda path: path.write_bytes(change(path.read_bytes())) and None


def _view(path):
    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            "DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY; DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; CREATE VIEW "
            "CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT "
            "x AS start, x AS end FROM c"
        )


def _of_others(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as base:
        base.executescript("CREATE TABLE notes (id INTEGER); INSERT INTO notes VALUES (1)")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_rewritten(lambda content: content[:16]), "is a database that cannot be read"),
        (_rewritten(lambda content: content[:-4096]), "is a database that cannot be read"),
        (
            _rewritten(lambda content: content.replace(b"TABLE NVTX", b"T\xafBLE NVTX")),
            "is a database that cannot be read",
        ),
        (
            _rewritten(lambda content: content[:4096] + b"\xff" * 8192),
            "cannot be read|no work of a device",
        ),
        (_rewritten(lambda content: b"none" + content), "it has no events"),
        (_view, "holds no work of a device"),
        (_of_others, "holds no work of a device"),
    ],
)
def test_what_is_no_report_is_one_sentence(spoil, sentence, tmp_path):
    path = report(tmp_path / "a.sqlite", two_steps())
    spoil(path)
    with pytest.raises(UserError, match=sentence):
        read_job([str(path)])


def test_a_report_with_a_damaged_page_is_read_as_far_as_it_goes(tmp_path):
    events = [
        event
        for n in range(300)
        for event in (launch(10 * n, n), kernel(GEMM, 10 * n + 5, 10 * n + 9, n))
    ]
    path = report(tmp_path / "a.sqlite", events)
    path.write_bytes(path.read_bytes()[:-4096] + b"\xff" * 4096)
    trace = read_job([str(path)], whole=True)
    assert any(
        "cannot be read: database disk image is malformed" in text for text in trace.warnings
    )
