"""Twenty-five mutations of every format; `make faults` plays ten thousand."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stash.cli.main import main
from stash.core.errors import UserError
from stash.store.schema import TABLES
from tests.faults.fuzz import limits
from tests.faults.fuzz.formats import CORPUS, FORMATS
from tests.faults.fuzz.limits import problem_with
from tests.faults.fuzz.mutations import mutated
from tests.faults.fuzz.play import content, play

MUTATIONS = 25


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_nothing_but_text_or_a_sentence_comes_of_a_changed_file(form):
    assert play(form, range(MUTATIONS)) == []


def test_every_format_has_whole_files_to_begin_with():
    assert {path.name for path in CORPUS.iterdir()} == {form.folder for form in FORMATS}
    assert all(form.corpus for form in FORMATS)


def test_the_same_seed_makes_the_same_files_in_every_process():
    form = FORMATS[0]
    here = [content(form, form.corpus, number).hex() for number in range(5)]
    assert len(set(here)) == 5
    program = (
        "import json; from tests.faults.fuzz.formats import FORMATS; from tests.faults.fuzz.play import content; "
        "form = FORMATS[0]; print(json.dumps([content(form, form.corpus, n).hex() for n in range(5)]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(done.stdout) == here


def test_mutations_change_files_of_any_kind():
    chance = random.Random(0)
    for whole in (b'{"a": [1, 2.5, "x", null]}', b"a: 1\nb: [x, y]\n", b"\xff\x00", b""):
        assert len({mutated(whole, chance) for _ in range(50)}) > 5


def _endless(path):
    while True:
        pass


def _greedy(path):
    return ["x" * 2**30]


def _refuses(path):
    raise UserError("no")


def _says_it_all(path):
    raise UserError("no" * 20_000)


def _fails(path):
    raise KeyError("x")


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (lambda path: ["fine"], None),
        (_refuses, None),
        (lambda path: ['{"a": 1.5}'], None),
        (lambda path: ['{"a": Infinity}'], "Infinity is no number of JSON"),
        (lambda path: ['{"a": '], "JSON that is none"),
        (lambda path: ["\x1b[2J"], "acts on a terminal"),
        (_says_it_all, "an error of 40000 characters"),
        (_greedy, "more than 300 MB"),
        (_fails, "KeyError in test_fuzz.py"),
    ],
)
def test_what_must_not_be_is_found(read, problem):
    found = problem_with(read, Path("file"))
    assert found is None if problem is None else found is not None and problem in found


def test_what_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    began = time.process_time()
    assert problem_with(_endless, Path("file")) == "more than 0 s"
    assert time.process_time() - began < 2


def test_a_store_of_changed_files_is_listed_asked_and_verified(tmp_path, monkeypatch, capsys):
    for form in FORMATS:
        if form.name in ("stored", "stored-probe"):
            for number in range(20):
                name = f"{number}-{form.file}"
                (tmp_path / name).write_bytes(content(form, form.corpus, number))
    counts = " union all ".join(
        f"select '{table}', count(*), max(id) from {table}" for table in TABLES
    )
    folder = str(tmp_path)
    commands = (("list", folder, "--limit", "1000"), 0), (("query", counts, "--store", folder), 0)
    for words, code in (*commands, (("store", "verify", folder), 1)):
        monkeypatch.setattr("sys.argv", ["stash", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code, words
    printed = capsys.readouterr()
    assert "files are not" in printed.out
    assert "Traceback" not in printed.err
