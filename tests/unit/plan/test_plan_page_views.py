"""A plan shown: on a screen, as a note, line by line, as JSON; parts add up and nothing unknown becomes zero."""

import json
import re
from pathlib import Path

import plan_builder
import pytest

from stash.core.errors import UserError
from stash.core.formatting import format_dollars
from stash.core.intervals import Interval
from stash.plan.explained import explain_type
from stash.plan.page import document, money_parts, page, verdict
from stash.plan.records import RentalPlan
from stash.ui.markdown import render as render_note
from stash.ui.terminal import render

PLANS = {
    "one of each": plan_builder.plan(),
    "nothing feasible": plan_builder.nothing_feasible(),
    "nothing known": plan_builder.plan(choices=(), experiment=None),
}


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_no_line_is_wider_than_the_screen(plan, width, colour):
    lines = re.sub(r"\x1b\[[0-9;]*m", "", render(page(plan), width, colour)).splitlines()
    assert max(map(len, lines)) <= width
    assert colour or all(line.isascii() for line in lines)


def test_the_parts_of_the_bill_add_up_as_they_are_shown():
    best = plan_builder.chosen_choice()
    parts = money_parts(best)
    assert [part.name for part in parts[-2:]] == ["fetch", "start-up"]
    assert sum(int(part.time.removeprefix("$")) for part in parts) == round(best.dollars.value)
    assert sum(part.fraction for part in parts) == pytest.approx(1)
    # 240 of 330 ms are compute; the rest of what trains are stalls.
    trains = best.items[0].dollars.value
    assert f"{format_dollars(trains * 90 / 330, 0)} of it (" in verdict(plan_builder.plan())


def choices(plan, pareto=False):
    """The short table's rows by the heads of its columns."""
    grid = page(plan, pareto).grids[0]
    return [dict(zip(("word", *grid.head), row, strict=True)) for row in grid.rows]


def test_a_screen_leaves_out_the_many_that_lost_and_says_how_many():
    many = plan_builder.plan(choices=(plan_builder.chosen_choice(), *[plan_builder.lost()] * 9))
    (grid,) = page(many).grids
    assert len(grid.rows) == 4
    assert "; 6 choices more: `--json`" in grid.below
    assert grid.below.startswith("by: o scaled from what was profiled, s data sheets;")
    (front,) = page(plan_builder.plan(), pareto=True).grids
    assert [row[0] for row in front.rows] == ["rent", "tie", "front"]
    assert "; 3 choices off the front" in front.below


def test_capacity_that_is_paid_for_already_costs_nothing_and_has_no_bar():
    best = plan_builder.chosen_choice()
    nothing = Interval(value=0.0, low=0.0, high=0.0)
    free = best.model_copy(
        update={
            "dollars": nothing,
            "stalls": tuple(stall.model_copy(update={"dollars": nothing}) for stall in best.stalls),
            "items": tuple(item.model_copy(update={"dollars": nothing}) for item in best.items),
        }
    )
    shown, line = (
        page(plan_builder.plan(choices=(free,))),
        choices(plan_builder.plan(choices=(free,)))[0],
    )
    assert shown.bar == ()
    assert line["cost"] == "$0.00 ± <0.01"
    assert line["largest stall"] == "interconnect 15%"
    assert "stalls" not in shown.verdict[0]
    assert render(shown, 80)


@pytest.mark.parametrize("name", ["p3.16xlarge", "aws/P3.16xlarge"])
def test_a_type_is_found_by_every_way_to_write_it(name):
    assert explain_type(plan_builder.plan(), name).title == "1 × p3.16xlarge"


def test_what_is_not_ranked_says_why_and_what_is_nowhere_has_neighbours():
    shown = explain_type(plan_builder.plan(), "p2.8xlarge")
    assert shown.verdict[0] == "It is not ranked: its network is not known."
    with pytest.raises(
        UserError,
        match=r"--explain-type p3\.17xlarge: nothing of that type .* did you mean p3\.16xlarge",
    ):
        explain_type(plan_builder.plan(), "p3.17xlarge")


def test_the_document_reads_back_as_the_plan():
    for plan in PLANS.values():
        written = json.loads(json.dumps(document(plan)))
        assert RentalPlan.model_validate(written) == plan
    written = document(plan_builder.plan())
    assert written["chosen"] == "1 × g5.48xlarge"
    assert written["choices"][3]["name"] == "2 × p3.8xlarge"
    assert written["choices"][0]["samples_per_second"] == pytest.approx(512 / 0.33)
    assert written["choices"][0]["within_budget"] is None
    assert document(plan_builder.nothing_feasible())["chosen"] is None


def test_a_note_escapes_what_comes_from_elsewhere_and_keeps_its_tables_whole():
    plan = plan_builder.plan(workload="<b>@all</b> | resnet")
    note = render_note(page(plan))
    assert "<b>" not in note
    assert "@all" not in note
    table = [line for line in note.partition("<details>")[0].splitlines() if line.startswith("|")]
    assert len(table) == 2 + 6
    assert len({line.replace("\\|", "").count("|") for line in table[:8]}) == 1
    assert "**Rent 1 × g5.48xlarge" in note


def test_control_characters_of_an_artefact_never_reach_a_terminal():
    shown = page(plan_builder.plan(workload="evil\x1b[31m"))
    assert "\x1b[31m" not in render(shown, 80)


def test_no_number_stands_beside_a_question_mark():
    commands = Path(__file__).parents[2] / "golden/commands"
    for file in commands.glob("*.txt"):
        text = file.read_text()
        assert "± ?" not in text, file.name
        assert "+/- ?" not in text, file.name
