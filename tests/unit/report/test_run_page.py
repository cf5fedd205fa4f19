"""An epoch as a terminal, the report and programs show it."""

import pytest
from breakdowns import advice_for, flat
from profile_builder import build, ledger

from stash.analysis.attribution import attribute
from stash.core.records.profile import LedgerPlace, Loader
from stash.report.pages import ReadRun, page_of_profile
from stash.report.profile_contract import document
from stash.report.profile_page import page
from stash.ui.html import render as render_html
from stash.ui.markdown import render as render_markdown
from stash.ui.terminal import render

PLACES = (
    LedgerPlace(
        row="epoch start",
        file="train.py",
        line=57,
        text="for x, y in loader:",
        seconds=0.0,
        each=1.07,
    ),
    LedgerPlace(
        row="loop",
        file="train.py",
        line=88,
        text="torchmetrics.update()",
        inside="AUROC.compute",
        seconds=16 * 0.0042,
    ),
    LedgerPlace(row="loop", file="train.py", line=90, text="x" * 200, seconds=16 * 0.0016),
    LedgerPlace(
        row="backward",
        file="train.py",
        line=80,
        text="loss.backward()",
        inside="_engine_run_backward",
        seconds=16 * 0.012,
    ),
    LedgerPlace(row="loop", file="train.py", line=91, text="step += 1", seconds=16 * 0.0000001),
)


def epochs(**fields):
    """Epochs of 20 steps of 20.2 ms, 6 of them the script's own, that each begin with 1.07 s."""
    starts = {"epoch start": {0: 1.2, 20: 1.06, 40: 1.07, 60: 1.08}}
    typed = ledger(
        epoch_steps=20, a_step={"loop": 0.006}, now_and_then=starts, places=PLACES, **fields
    )
    loader = Loader(kind="map", workers=2, persistent_workers=False)
    times = flat(6, solo=0.020, warm=0.0202)
    return build(times, ranks=1, workload={"loaders": (loader,)}, ledgers=(typed,))


def shown(profile, width=80, explain=False):
    return render(page(attribute(profile), advice_for(profile), profile, explain), width)


def test_a_terminal_shows_the_epochs_rows_and_a_line_for_each_place():
    text = shown(epochs())
    assert (
        """
  An epoch of 20 steps
                 a step  95%           share  each time
  compute      14.00 ms  +/- 1.05      19.0%
  prep          0.20 ms  +0.85 -0.20    0.3%
  loop          6.00 ms  +/- unknown    8.1%
  epoch start  53.50 ms  +/- 2.95      72.6%  1.07 s before every 20 steps
  ------------------------------------------------------------------------
  epoch        73.70 ms               100.0%
  Start-up, once: 3.00 s.

  Where        takes             row          line
  train.py:57  1.07 s each time  epoch start  for x, y in loader:
  train.py:88  4.20 ms a step    loop         torchmetrics.update() (in
                                              AUROC.compute)
"""
        in text
    )
    assert "train.py:91" not in text  # takes next to nothing
    assert "train.py:80" not in text  # a part of compute
    assert "compute contains 6.00 ms of loop, which the table below tells apart" in " ".join(
        text.split()
    )


def test_what_was_not_seen_stands_below_the_table():
    profile = epochs(unplaced="stacks may not be read here")
    assert "Lines of the script are unknown: stacks may not be read here." in " ".join(
        shown(profile).split()
    )


def test_the_report_begins_with_the_epoch_and_the_summary_has_its_table():
    profile = epochs()
    whole = page_of_profile(
        ReadRun("a", profile, attribute(profile)), advice_for(profile), "a.stash.json"
    )
    assert [row.name for row in whole.bar] == ["compute", "prep", "loop", "epoch start"]
    assert sum(row.fraction for row in whole.bar) == pytest.approx(1.0)
    html = render_html(whole)
    summary = render_markdown(whole)
    assert html.index("epoch start") < html.index("Where the step goes")
    assert "torchmetrics.update()" in html
    assert "| epoch start | 53.50 ms | ± 2.95 | 72.6% | 1.07 s before every 20 steps |" in summary
    assert (
        "| train.py:88 | 4.20 ms a step | loop | torchmetrics.update() (in AUROC.compute) |"
        in summary
    )


def test_programs_read_rows_places_and_what_is_unseen():
    profile = epochs()
    found = document(attribute(profile), advice_for(profile), profile)
    assert found["verdict"]["kind"] == "run"
    assert found["verdict"]["stall"] == "epoch start"
    run = found["run"]
    assert (run["epoch_steps"], run["step_seconds"], run["startup_seconds"]) == (20, 0.0737, 3.0)
    assert {row["name"]: row["seconds"] for row in run["rows"]} == {
        "compute": 0.014,
        "prep": 0.0002,
        "loop": 0.006,
        "epoch start": 0.0535,
    }
    start = run["rows"][-1]
    assert (start["each_seconds"], start["every_steps"], start["times"], start["rank"]) == (
        1.07,
        20,
        3,
        None,
    )
    assert run["places"][1] == {
        "row": "loop",
        "file": "train.py",
        "line": 88,
        "text": "torchmetrics.update()",
        "inside": "AUROC.compute",
        "called_at": None,
        "seconds": 0.0042,
        "each_seconds": None,
    }
    assert len(run["places"]) == 5
    assert run["unseen"] == []
    assert [stall["seconds"] for stall in found["stalls"]] == [0.02, 0.0002]  # as ever: the step's


def test_the_epochs_rows_add_up_to_it_however_small_some_are():
    # GIVEN prep and a collector that take less than 1 % of an epoch each
    typed = ledger(
        epoch_steps=20,
        a_step={"loop": 0.006, "collector": 0.0001},
        now_and_then={"epoch start": {0: 1.2, 20: 1.06, 40: 1.07, 60: 1.08}},
    )
    profile = build(flat(6, solo=0.020, warm=0.0202), ranks=1, ledgers=(typed,))
    account, *_ = page(attribute(profile), advice_for(profile), profile).grids
    *rows, total = [(row[0], float(row[1].split()[0])) for row in account.rows]
    assert rows[-1][0] == "others"
    assert account.rows[-2][-1] == "prep and collector"
    assert sum(time for _, time in rows) == pytest.approx(total[1], abs=0.011)
