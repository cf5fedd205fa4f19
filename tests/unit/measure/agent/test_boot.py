"""The start of the agent: every wrap has its home, and a module is wrapped right after its first import."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest

from stash.measure.agent import boot

TABLES = (boot.WRAPS, boot.WATCHED, boot.TRIAL)
HOMES = sorted({home for table in TABLES for homes in table.values() for home in homes.split()})


@pytest.mark.parametrize("wrap", HOMES)
def test_every_wrap_has_its_home(wrap):
    home, _, function = wrap.partition(":")
    assert callable(getattr(import_module(f"stash.measure.agent.{home}"), function))


def test_a_trial_wraps_what_a_profile_does_and_a_profile_nothing_of_a_trials():
    for module, homes in boot.TRIAL.items():
        assert set(boot.WRAPS.get(module, "").split()) <= set(homes.split())
    assert not any("trial" in homes for homes in boot.WRAPS.values())


def test_a_module_is_wrapped_once_and_right_after_it_was_executed(tmp_path, monkeypatch):
    (tmp_path / "later.py").write_text("value = 1\n")
    home = ModuleType("stash.measure.agent.of_this_test")
    seen: list[int] = []
    home.wrap = lambda module: seen.append(module.value)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, home.__name__, home)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(
        sys, "meta_path", [boot.PostImport({"later": "of_this_test:wrap"}), *sys.meta_path]
    )
    assert find_spec("later") is not None  # a look whether it is there, which imports nothing
    import_module("later")
    monkeypatch.delitem(sys.modules, "later")
    assert seen == [1]
    import_module("later")
    monkeypatch.delitem(sys.modules, "later")
    assert seen == [1]


def test_what_was_not_asked_for_is_not_looked_at():
    hook = boot.PostImport({"torch.later": "x:y"})
    assert hook.find_spec("json", None) is None


def test_what_a_rank_starts_does_not_share_its_cores_once_more(monkeypatch):
    pinned: list[tuple[int, int]] = []
    monkeypatch.setattr(boot, "pin_rank", lambda *place: pinned.append(place))
    monkeypatch.setenv("STASH_PINNED", "1 (0, 1)")  # by torchrun, which has no rank
    for _ in range(2):  # the rank, and a worker that it spawns
        boot._pin_once(1, (1, 4))
    assert pinned == [(1, 4)]
    boot._pin_once(2, (1, 4))
    assert pinned == [(1, 4)] * 2
