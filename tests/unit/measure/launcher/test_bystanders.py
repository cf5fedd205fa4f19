"""Programs beside the job: named without their arguments, added up, and none that the job itself started."""

import os
import shutil

import pytest

from stash.measure.launcher.bystanders import Bystanders, program_name


def process(
    proc,
    number,
    ticks,
    *words,
    comm="x",
    children=0,
    parent=1,
):
    folder = proc / str(number)
    folder.mkdir(exist_ok=True)
    fields = ["S", str(parent), *["0"] * 9, str(ticks), "0", str(children), *["0"] * 6]
    (folder / "stat").write_text(f"{number} ({comm}) {' '.join(fields)}")
    (folder / "comm").write_text(comm)
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")


@pytest.fixture
def clock():
    return [0.0]


def seen(proc, clock):
    return Bystanders(proc, lambda: clock[0])


def test_programs_have_the_cores_they_used_between_looks(tmp_path, clock):
    found = seen(tmp_path, clock)
    process(tmp_path, 10, 1000, "/usr/bin/python3", "-m", "pip", "install", "secret")
    process(tmp_path, 11, 0, "/usr/bin/cc1plus", "a.cpp")
    found.sample_programs()
    tick = os.sysconf("SC_CLK_TCK")
    clock[0] = 2.0
    process(tmp_path, 10, 1000 + tick, "/usr/bin/python3", "-m", "pip", "install", "secret")
    process(tmp_path, 11, 0, "/usr/bin/cc1plus", "a.cpp", children=2 * tick)
    found.sample_programs()
    assert [(each.name, each.cores) for each in found.list_programs()] == [
        ("cc1plus", 1.0),
        ("pip", 0.5),
    ]


def test_a_child_that_ended_with_its_parent_counts_once(tmp_path, clock):
    # GIVEN a script that has waited for ten minutes for a child that worked, and somebody who waits for the script
    found, tick = seen(tmp_path, clock), os.sysconf("SC_CLK_TCK")
    process(tmp_path, 10, 0, "/usr/bin/make")
    process(tmp_path, 11, 0, "/usr/bin/run.sh", parent=10)
    process(tmp_path, 12, 600 * tick, "/usr/bin/cc1plus", parent=11)
    found.sample_programs()
    # WHEN both end within a second, in which the child worked for half of one
    clock[0] = 1.0
    shutil.rmtree(tmp_path / "11")
    shutil.rmtree(tmp_path / "12")
    process(tmp_path, 10, 0, "/usr/bin/make", children=600 * tick + tick // 2)
    found.sample_programs()
    # THEN that is what was used
    assert [(each.name, each.cores) for each in found.list_programs()] == [("make", 0.5)]


def test_what_this_process_started_is_the_jobs(tmp_path, clock):
    found, tick = seen(tmp_path, clock), os.sysconf("SC_CLK_TCK")
    for used in (0, tick):
        process(tmp_path, os.getpid(), used, "/usr/bin/stash")
        process(tmp_path, 3, used, "/usr/bin/torchrun", parent=os.getpid())
        process(tmp_path, 4, used, "/usr/bin/train.sh", parent=3)
        process(tmp_path, 5, used, "/usr/bin/make", parent=6)
        found.sample_programs()
        clock[0] += 1.0
    assert [each.name for each in found.list_programs()] == ["make"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python -W ignore::X y.py", "y.py"),
        ("/usr/bin/python3.11 -X dev -u /a/y.py --epochs 3", "y.py"),
        ("python -m pkg train", "pkg"),
        ("python -Im pkg", "pkg"),
        ("bash script.sh", "script.sh"),
        ("bash -o pipefail script.sh", "script.sh"),
        ("bash -lc make", "bash"),
        ("bash /dev/fd/3", "bash"),  # what has no name of its own has its interpreter's
        ("java -Xmx512m -jar /opt/x.jar serve", "x.jar"),
        ("java -cp a.jar:b.jar com.example.Main", "com.example.Main"),
        ("node -r esm app.js", "app.js"),
        ("perl -e 1", "perl"),
        ("python -", "python"),
        ("node_exporter --web", "node_exporter"),
        ("/usr/bin/make all", "make"),
    ],
)
def test_a_process_is_called_by_what_its_interpreter_runs(words, name):
    assert program_name(words.split()) == name
