"""What is no regular file, or too large, in the place of a user's file: one sentence, at once; nothing is opened."""

import ast
import os
import socket
from pathlib import Path

import pytest
from commands import run

import stash
from stash.core.files import opened_regular, read_up_to

SOURCE = Path(stash.__path__[0])
_READS = ("read_text", "read_bytes")
OWN = {
    "core/files.py",
    "core/end_tree.py",  # what the kernel tells of a process
    "core/jsonl.py",  # opened by its writer or for following
    "ui/html.py",  # templates
    "ui/charts/chart_files.py",  # fonts
    "catalog/shipped.py",
    "catalog/refresh.py",  # an archive's members, bounded
    "core/artefact.py",
}


@pytest.fixture
def odd(tmp_path):
    """One of each kind, by any ending."""
    found = {
        "pipe": tmp_path / "pipe",
        "socket": tmp_path / "socket",
        "folder": tmp_path / "folder",
    }
    os.mkfifo(found["pipe"])
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(found["socket"]))
    found["folder"].mkdir()
    return {**found, "device": Path("/dev/zero")}


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("pipe", "it is a pipe"), ("socket", "it is a socket"), ("device", "it is a device")],
)
def test_what_is_no_regular_file_is_never_opened(odd, kind, sentence):
    with pytest.raises(
        OSError, match=f"{sentence}, not a regular file; save its content to a file first"
    ):
        read_up_to(odd[kind], 10)


def test_a_link_to_a_device_is_a_device_and_one_to_a_file_is_that_file(tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"x" * 20)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="a device"):
        read_up_to(tmp_path / "zero", 10)
    assert read_up_to(tmp_path / "link", 10) == b"x" * 11


def test_a_pipe_that_takes_the_files_place_meanwhile_is_not_read(odd, tmp_path, monkeypatch):
    regular = tmp_path / "regular"
    regular.write_text("x")
    before = os.listdir("/proc/self/fd")
    was = regular.stat()
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path, **_: was)
        with pytest.raises(OSError, match="a pipe"):
            read_up_to(odd["pipe"], 10)
    assert os.listdir("/proc/self/fd") == before


def test_standard_input_from_a_file_is_read_and_from_a_pipe_refused(monkeypatch, capsys):
    golden = Path(__file__).parents[2] / "golden" / "one-node.stash.json"
    pipe = os.pipe()
    files = (os.open(golden, os.O_RDONLY), pipe[0])
    own = os.dup(0)
    try:
        codes = [os.dup2(each, 0) or run(monkeypatch, "show", "/dev/stdin") for each in files]
    finally:
        os.dup2(own, 0)
        for each in (*files, pipe[1], own):
            os.close(each)
    assert codes == [0, 2]
    assert "it is a pipe, not a regular file" in capsys.readouterr().err


def test_a_file_that_grows_while_it_is_read_ends(tmp_path):
    path = tmp_path / "grows"
    path.write_bytes(b"x" * 2**20)

    with opened_regular(path) as file, path.open("ab") as more:
        file.read(2**20)
        more.write(b"y" * 2**20)
    assert len(read_up_to(path, 2**20 + 5)) == 2**20 + 6


def test_files_of_users_are_read_in_one_way():
    """Of what only reads; what trains and measures has files of its own."""
    for wing in (
        "core",
        "catalog",
        "store",
        "analysis",
        "predict",
        "advice",
        "report",
        "ui",
        "whatif",
        "plan",
        "cli",
    ):
        for path in sorted((SOURCE / wing).rglob("*.py")):
            if path.relative_to(SOURCE).as_posix() in OWN:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                called = node.func if isinstance(node, ast.Call) else None
                name = getattr(called, "id", "") or getattr(called, "attr", "")
                assert name not in _READS, (path, node.lineno)
                if name == "open" and isinstance(called, ast.Name):
                    raise AssertionError((path, node.lineno))
