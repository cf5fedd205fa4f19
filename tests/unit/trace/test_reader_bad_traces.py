"""What is no trace, or not one job's: one sentence that says what to do, exit code 2."""

import gzip
import json
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hand_traces import document, two_steps, write

from bench.trace.fuzz import mutate_bytes
from stash.core.errors import UserError
from stash.trace.command import read_job

EXECUTION_TRACE = '{"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "x"}]}'


def _files(folder, case):
    """The words of the command line for a case."""
    text = json.dumps(document(two_steps()))
    made = {
        "an empty folder": {},
        "other files": {"notes.txt": "hello"},
        "no events": {"a.json": "{}"},
        "no JSON": {"a.json": "\x00\x01"},
        "an execution trace": {"a.json": EXECUTION_TRACE},
        "a snapshot of memory": {"a.json": '{"segments": [], "device_traces": []}'},
        "one rank twice": {"a.json": text, "b.json": text},
        "different jobs": {
            f"rank{n}.json": json.dumps(document(two_steps(), n, 2 + 2 * n)) for n in (0, 1)
        },
        "a report of Nsight": {"a.nsys-rep": "\x00"},
        "deep nesting": {"a.json": '{"traceEvents": [' + "[" * 100_000},
        "a list of numbers": {"a.json": "[1, 2, 3]"},
    }[case]
    for name, content in made.items():
        (folder / name).write_text(content)
    return [str(folder / name) for name in made] or [str(folder)]


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("an empty folder", "there is no trace in"),
        ("other files", "is no trace of torch.profiler"),
        ("no events", "it has no events"),
        ("no JSON", "it has no events"),
        ("an execution trace", "an execution trace, which has no times"),
        ("a snapshot of memory", "a snapshot of memory"),
        ("one rank twice", "are both of rank 0; name one file a rank"),
        ("different jobs", "traces of different jobs: of 2 and 4 ranks"),
        (
            "a report of Nsight",
            "a report of Nsight Systems; export it with `nsys export --type=sqlite`",
        ),
        ("deep nesting", "it has no events"),
        ("a list of numbers", "it has no events"),
    ],
)
def test_what_is_no_trace_is_one_sentence(
    case,
    sentence,
    tmp_path,
    run_stash,
):
    error = run_stash("trace", *_files(tmp_path, case), code=2).err
    assert sentence in " ".join(error.split())
    assert error.count("\n") == 1


def test_a_folder_of_other_files_says_what_is_there(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError, match=r"traces end in \.json, .*; there is notes\.txt"):
        read_job([str(tmp_path)])


def test_a_file_that_is_no_trace_among_traces_is_left_out(tmp_path):
    write(tmp_path / "rank0.json", two_steps())
    (tmp_path / "config.json").write_text("{}")
    assert any("config.json" in text for text in read_job([str(tmp_path)]).warnings)


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("stash.trace.reader._SMALL", 1 << 20)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b" " * (8 << 20)))
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b.json", b" " * (8 << 20))
    for name in ("a.json.gz", "b.zip"):
        with pytest.raises(UserError, match="unpacks to more than 400 times its size"):
            read_job([str(tmp_path / name)])


def test_names_that_act_are_shown_and_long_ones_are_cut(tmp_path, run_stash):
    events = two_steps()
    events[5]["name"] = "<script>alert(1)</script>\x1b[2J nccl" + "x" * 2_000_000
    file = write(tmp_path / "rank0.json", events, host_name="secret-host", username="someone")
    saved = tmp_path / "a.trace.json"
    assert "\x1b[2J" not in run_stash("trace", str(file), "-o", str(saved)).out
    content = saved.read_text()
    assert "secret-host" not in content
    assert "someone" not in content
    assert len(content) < 10_000
    page = tmp_path / "a.html"
    run_stash("report", str(saved), "-o", str(page))
    assert "<script>alert" not in page.read_text()


def test_damaged_traces_end_in_an_answer_or_one_sentence(tmp_path):
    whole = json.dumps(document(two_steps(), world=1), indent=1).encode()
    for seed in range(150):
        path = tmp_path / "rank0.json"
        path.write_bytes(mutate_bytes(whole, random.Random(seed)))
        with suppress(UserError):
            read_job([str(path)])


class _Hostile:
    def __reduce__(self):
        return (print, ("this must never be called",))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",
        pickle.dumps({"entries": [_Hostile()]}),
        pickle.dumps({"entries": [], "x": Path("a")}),
        b"\x80\x04.",
        b"\x80",
    ],
)
def test_a_pickle_that_is_more_than_data_is_refused(
    content,
    tmp_path,
    run_stash,
):
    (tmp_path / "nccl_trace_rank_0").write_bytes(content)
    shown = run_stash("trace", str(tmp_path), "--flight-recorder", code=2)
    assert "no dump of a flight recorder" in shown.err
    assert "never be called" not in shown.out
