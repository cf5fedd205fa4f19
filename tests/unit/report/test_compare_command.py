"""``stash compare`` and ``stash check``: the words of the command line, exit codes, and what they refuse."""

from xml.etree import ElementTree

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.core.artefact import save
from stash.core.errors import UserError
from stash.report.command import parse_sides

SLOW = {name: [1.2 * value for value in values] for name, values in CALM.items()}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, times, batch in (
        ("a", CALM, 8),
        ("b", CALM, 8),
        ("slow", SLOW, 8),
        ("twice", CALM, 16),
    ):
        save(build(times, batch=batch), tmp_path / f"{name}.stash.json")
    save(build(CALM, workload={"name": "other.py"}), tmp_path / "other.stash.json")
    return tmp_path


def test_the_first_is_compared_with_each_other_one():
    assert parse_sides(["a", "b", "c"]) == [(("a",), ("b",)), (("a",), ("c",))]


def test_with_vs_all_before_it_are_a_side():
    assert parse_sides(["a", "b", "vs", "c"]) == [(("a", "b"), ("c",))]


@pytest.mark.parametrize("words", [["a"], ["vs", "a"], ["a", "vs"]])
def test_a_side_without_a_profile_is_refused(words):
    with pytest.raises(UserError, match="needs two profiles"):
        parse_sides(words)


@pytest.mark.parametrize(
    "words", [["a", "b", "./a"], ["a", "b", "vs", "c", "a"], ["a", "a", "vs", "b"]]
)
def test_a_profile_compared_with_itself_is_refused(words):
    with pytest.raises(UserError, match="a profile does not differ from itself"):
        parse_sides(words)


def test_different_jobs_are_refused_unless_anyway(run_stash):
    printed = run_stash("compare", "a.stash.json", "other.stash.json", code=2)
    words = "different jobs, in workload (train.py and other.py); compare them all the same with --force"
    assert words in printed.err
    run_stash("compare", "--force", "a.stash.json", "other.stash.json")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--max", "step=1s"), 0),
        (("--max", "step=1ms"), 1),
        (("--max", "step=176ms"), 3),
        (("--max", "step=176ms", "--max", "step=1ms"), 1),
        (("--max", "step=1s", "--max", "step=176ms"), 3),
        (("--against", "b.stash.json", "--slower", "5%"), 0),
        (("--against", "slow.stash.json", "--slower", "5%"), 0),
        (("--against", "slow.stash.json", "--slower", "5%", "--slower", "prep=10%"), 0),
        (("--against", "twice.stash.json", "--slower", "5%"), 1),
        (("--against", "b.stash.json", "--slower", "network=5%"), 2),
        (("--against", "b.stash.json", "--slower", "speed=5%"), 2),
        (("--require", "ranks=2"), 0),
        (("--require", "ranks=8"), 1),
        (("--require", "kernel=6"), 3),
        (("--require", "colour=red"), 2),
        (("--against", "b.stash.json"), 2),
        (("--slower", "5%"), 2),
        (("--against", "other.stash.json", "--slower", "5%"), 2),
        (("--max", "network=5%"), 2),
        ((), 2),
    ],
)
def test_check_answers_with_its_exit_code(words, code, run_stash):
    assert run_stash("check", "a.stash.json", *words, code=code).err.count("error: ") == (code == 2)


def test_check_writes_junit_beside_its_lines(run_stash):
    words = ("--max", "step=1ms", "--require", "nodes=1", "--junit", "stash.xml")
    assert (
        run_stash("check", "a.stash.json", *words, code=1).out.splitlines()[0]
        == "passes: nodes is 1; asked for is 1 (--require nodes=1)"
    )
    suite = ElementTree.parse("stash.xml").getroot()[0]
    assert [case[0].tag for case in suite] == ["system-out", "failure"]
    assert (
        "--junit no/where.xml: No such file or directory; choose another place"
        in run_stash(
            "check", "a.stash.json", "--max", "step=1s", "--junit", "no/where.xml", code=2
        ).err
    )
