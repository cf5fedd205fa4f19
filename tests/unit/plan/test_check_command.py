"""``stash check``: exit codes, what is printed, and what it refuses."""

from xml.etree import ElementTree

import plan_builder
import pytest
from checked_plans import later
from commands import run

from stash.core.artefact import save
from stash.plan.records import save_plan


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_plan(plan_builder.plan(), "a.plan.json")
    save(later(), "good.stash.json")
    save(later(network=0.250), "slow.stash.json")
    save(later(nodes=4), "four.stash.json")
    return tmp_path


def blind_plan():
    lost = plan_builder.lost()
    step = lost.step.model_copy(update={"low": None, "high": None})
    save_plan(
        plan_builder.plan(choices=(lost.model_copy(update={"step": step}),)), "blind.plan.json"
    )


@pytest.mark.parametrize(
    ("plan", "profile", "code"),
    [
        ("a.plan.json", "good.stash.json", 0),
        ("a.plan.json", "slow.stash.json", 1),
        ("blind.plan.json", "good.stash.json", 3),
        ("a.plan.json", "four.stash.json", 2),
        ("good.stash.json", "a.plan.json", 2),
        ("none.plan.json", "good.stash.json", 2),
    ],
)
def test_the_exit_code_is_the_answer(monkeypatch, capsys, plan, profile, code):
    blind_plan()
    assert run(monkeypatch, "check", plan, profile) == code
    printed = capsys.readouterr()
    assert len(printed.err.strip().splitlines()) == (1 if code == 2 else 0)


def test_a_hostile_plan_is_shown_as_text(monkeypatch, capsys):
    fact = plan_builder.NETWORK.model_copy(update={"source": "\x1b]0;owned\x07\nx"})
    lost = plan_builder.lost()
    stalls = tuple(each.model_copy(update={"facts": (fact,)}) for each in lost.stalls)
    choice = lost.model_copy(update={"stalls": stalls, "beyond": ("\x1b[2J",)})
    save_plan(plan_builder.plan(choices=(choice,)), "hostile.plan.json")
    for words in ((), ("--json",)):
        run(monkeypatch, "check", "hostile.plan.json", "slow.stash.json", *words)
        assert "\x1b" not in capsys.readouterr().out


def test_a_plan_has_junit_as_limits_have(monkeypatch):
    assert run(monkeypatch, "check", "a.plan.json", "slow.stash.json", "--junit", "plan.xml") == 1
    suite = ElementTree.parse("plan.xml").getroot()
    cases = {case.get("name"): [part.tag for part in case] for case in suite.iter("testcase")}
    assert cases == {"step": ["failure"], "deadline": ["failure"]}
