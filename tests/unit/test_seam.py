"""``stash.api``: what the features that rent and schedule take of those below, in one list, and no more than that."""

import ast
from pathlib import Path

import pytest

import stash
from stash import api

PACKAGE = Path(stash.__file__).parent
FEATURES = ("market", "schedule", "spot", "study")
MOST = 90


def imports(path):
    """(Module, name) of each ``from … import …`` of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", name) for name in node.names)


def taken(feature):
    return {
        name.name
        for path in (PACKAGE / feature).rglob("*.py")
        for module, name in imports(path)
        if module == "stash.api"
    }


def test_the_seam_has_what_is_taken_and_no_more():
    wanted = {*stash.__all__, "Profile"}.union(*map(taken, FEATURES))
    assert sorted(api.__all__) == sorted(wanted)
    assert len(api.__all__) <= MOST


def test_types_and_first_use_agree_on_every_home():
    seen = {
        name.asname or name.name: module + (f":{name.name}" if name.asname else "")
        for module, name in imports(PACKAGE / "api.py")
        if module.startswith("stash.") and name.name != "make_lazy_access"
    }
    assert seen == api.HOMES
    assert sorted(api.HOMES) == sorted(api.__all__)


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_is_where_the_seam_says(name):
    assert getattr(api, name) is not None


def test_a_schedule_takes_nothing_that_measures():
    """Import-linter sees only that it uses the seam."""
    homes = {api.HOMES[name].split(".")[1] for name in taken("schedule")}
    assert not homes & {"measure", "lab"}
