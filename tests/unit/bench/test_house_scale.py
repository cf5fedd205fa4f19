"""The scale of the house: counted by hand on a small tree, and that it refuses what has grown."""

from __future__ import annotations

import json
import textwrap

import pytest

from bench import house

ONE = '''
"""A module."""

import os

# why
def asked(row):
    """Say so."""
    import sys
    row.name = 1
    return _of_rows(row)  # fmt: skip


def _of_rows(row):
    return row
'''
TWO = """
class Moving:
    def __init__(self):
        self.a = self.b = self.c = self.d = self.e = self.f = 0

    def turn(self):
        self.a, self.b = 1, 2
        self.c += 1
        self.d: int = 2
        self.e = self.f = 3
"""


@pytest.fixture
def tree(tmp_path):
    for name, text in {"one.py": ONE, "inner/two.py": TWO}.items():
        path = tmp_path / "src" / "small" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    return tmp_path


def test_syntax_counted_by_hand(tree):
    """Statements of one: import, def, import, assignment, return, def, return; of two: class, two defs, five."""
    found = house.count_syntax(house.read_sources(tree / "src"))
    del found["nodes"]  # the next test counts some
    assert found == {"files": 2, "lines": 23, "statements": 7 + 8, "functions": 4, "classes": 1}


def test_nodes_of_one_statement_counted_by_hand(tmp_path):
    """Module, Assign, Name and its Store, BinOp, Constant, Add, Constant."""
    (tmp_path / "a.py").write_text("x = 1 + 2\n")
    assert house.count_syntax(house.read_sources(tmp_path))["nodes"] == 8


def test_packing_lines_changes_no_size(tmp_path):
    for name, text in {"wide": "x = [1, 2]\n", "tall": "# why\nx = [\n    1,\n    2,\n]\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(text)
    wide, tall = (
        house.count_syntax(house.read_sources(tmp_path / name)) for name in ("wide", "tall")
    )
    assert wide["lines"] < tall["lines"]
    assert {**wide, "lines": 0} == {**tall, "lines": 0}


def test_obstacles_counted_by_hand(tree):
    assert house.count_obstacles(house.read_sources(tree / "src")) == {
        "classes with 6 or more fields changed after construction": 1,
        "fmt: skip": 1,
        "functions over 50 lines": 0,
        "functions that are one participle": 1,
        "functions that begin with a preposition": 1,
        "lazy imports": 1,
        "private functions called once": 1,
        "writes to other objects' attributes": 1,
    }


def test_packages_counted_by_hand(tree):
    assert list(house.count_packages(tree / "src")) == ["inner", "small"]


def test_what_has_grown_is_named_and_what_shrank_is_not():
    kept = {"nodes": 100, "options": 3}
    assert house.find_risen({"nodes": 101, "options": 2}, kept) == [
        "nodes of src: 101, and house.json has 100"
    ]
    assert house.find_risen(kept, kept) == []
    assert house.find_risen({"classes": 1}, kept) == ["classes of src: 1, and house.json has 0"]


def test_a_check_fails_where_the_file_is_exceeded(tree, monkeypatch, capsys):
    now = {"nodes": 10, "options": 4}
    monkeypatch.setattr(house, "measure_ratchet", lambda sources: now)
    monkeypatch.setattr(house, "ROOT", tree)
    monkeypatch.setattr(house, "RATCHET", tree / "house.json")
    house.RATCHET.write_text(json.dumps({"nodes": 9, "options": 4}))
    assert house.main(["--check"]) == 1
    assert "make it smaller, or run `make house`" in capsys.readouterr().err
    house.RATCHET.write_text(json.dumps(now))
    assert house.main(["--check"]) == 0
