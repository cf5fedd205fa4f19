"""The fixture ``stash_budget`` in a pytest session of its own, found by the entry point that is declared."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.core.errors import UserError
from stash.measure import from_python
from stash.measure.pytest_plugin import stash_budget

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[2]
TESTS = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.randn(64), index % 10

def train(seconds):
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(100):
        for x, y in DataLoader(Samples(seconds), batch_size=4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

def test_it_is_quick(stash_budget):
    assert stash_budget(train, 0.0, budget=20, step="5s", prep="1s").workload.name == "train"

def test_its_loader_is_not_slow(stash_budget):
    stash_budget(train, 0.01, budget=20, prep="1ms")
"""


@pytest.mark.slow
def test_a_real_training_step_keeps_its_budget_or_fails(pytester):
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "pytest11"
    ]
    pytester.mkdir("declared-1.dist-info")
    pytester.path.joinpath("declared-1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: declared\nVersion: 1\n"
    )
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    pytester.path.joinpath("declared-1.dist-info/entry_points.txt").write_text(
        f"[pytest11]\n{lines}"
    )
    pytester.syspathinsert()
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess("--junitxml=out.xml", timeout=200)
    done.assert_outcomes(passed=1, failed=1, warnings=0)
    done.stdout.fnmatch_lines(["fails: prep is *"])
    properties = ET.parse(pytester.path / "out.xml").findall(".//property")
    by_name = [(each.get("name"), float(each.get("value") or "nan")) for each in properties]
    preps = [value for name, value in by_name if name == "stash.prep_seconds"]
    assert len(preps) == 2
    assert preps[1] == pytest.approx(0.04, rel=0.5)  # four samples of 10 ms


def called(monkeypatch, **limits):
    """The fixture's function on a profile whose step takes 176 ms; what it records."""
    recorded = []
    request = SimpleNamespace(node=SimpleNamespace(user_properties=recorded))
    monkeypatch.setattr(from_python, "profile", lambda *args, **wishes: build(CALM))
    fixture = stash_budget
    fixture.__wrapped__(request)(print, **limits)
    return dict(recorded)


def test_limits_are_decided_as_stash_check_does(monkeypatch):
    assert called(monkeypatch, step="200ms", prep="90%", samples_per_second=1)[
        "stash.step_seconds"
    ] == pytest.approx(0.176)
    with pytest.raises(pytest.fail.Exception, match=r"fails: step is 176 ± 2 ms"):
        called(monkeypatch, step="100ms", prep="90%")
    with pytest.raises(pytest.skip.Exception, match=r"cannot tell: .*a larger budget tells"):
        called(monkeypatch, step="176ms")


@pytest.mark.parametrize("limits", [{}, {"speed": "3s"}, {"step": "15%"}, {"prep": "soon"}])
def test_limits_that_mean_nothing_are_refused_before_anything_is_measured(monkeypatch, limits):
    with pytest.raises(UserError):
        called(monkeypatch, **limits)
