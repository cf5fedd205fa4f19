"""The record of a watched run: whole lines whenever its writer was killed, moved aside when large."""

import json
import os
from pathlib import Path

import pytest

from stash.core.errors import ArtefactError, UserError
from stash.core.records.circumstances import MachinePrice
from stash.monitor import command
from stash.monitor.page import document, page, summary
from stash.monitor.records import (
    Alert,
    Header,
    LateRank,
    RecordWriter,
    RunEvent,
    RunRecord,
    Window,
    load_record,
)
from stash.monitor.window_sums import sum_windows
from stash.ui.charts.builders import make_ruler
from stash.ui.terminal import render


def header(**more):
    known = {"id": "a", "stash_version": "1", "began": 1e9, "job": "train.py", "ranks": 4}
    return Header.model_validate({**known, **more})


def window(first, last, step=0.1, **more):
    stalls = {
        "compute": 0.06,
        "contention": 0.0,
        "transfer": None,
        "exchange": 0.01,
        "input": step - 0.07,
    }
    fields = {
        "began": 1e9 + first / 10,
        "seconds": step * (last - first + 1),
        "first_step": first,
        "last_step": last,
        "steps": last - first + 1,
        "step_seconds": step,
        "stalls": stalls,
        "set_by": {"input": 3},
        **more,
    }
    return Window.model_validate(fields)


def alert(number, ended=False):
    return Alert(
        number=number,
        when=1e9,
        what="slower",
        step=120,
        stall="input",
        rank=3,
        stage="input",
        ratio=1.3,
        seconds=0.03,
        plus_minus=0.001,
        ended=ended,
        text="steps are longer",
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "train.watch.jsonl"


def test_what_is_written_is_read_back_and_a_line_cut_short_is_left_out(path):
    writer = RecordWriter(path, header())
    lines = [
        window(1, 100),
        alert(1),
        RunEvent(when=1e9, what="lost", text="rank 2 is gone"),
        alert(1, ended=True),
    ]
    for line in lines:
        writer.write(line)
    with path.open("a") as file:
        # as it was once; kill -9
        file.write('{"kind":"totals","windows":1}\n{"kind":"window","beg')
    record = load_record(path)
    assert (record.windows, record.alerts, record.events) == ([lines[0]], [lines[3]], [lines[2]])


def test_files_that_an_older_stash_moved_aside_are_read_with_the_last(path):
    for name, part, run in (("train.1", 1, "a"), ("train.2", 2, "another"), ("train", 3, "a")):
        writer = RecordWriter(path.with_name(f"{name}.watch.jsonl"), header(id=run, part=part))
        writer.write(window(100 * part + 1, 100 * part + 100))
        writer.write(alert(7, ended=part == 3))
    record = load_record(path)
    assert [each.first_step for each in record.windows] == [101, 301]
    assert [(each.number, each.ended) for each in record.alerts] == [(7, True)]


def test_a_record_is_followed_until_its_run_has_ended(path, monkeypatch, capsys):
    writer = RecordWriter(path, header())
    left = [window(101, 200), RunEvent(when=1e9, what="end", text="the job has ended", code=0)]
    monkeypatch.setattr(command.time, "sleep", lambda seconds: writer.write(left.pop(0)))
    writer.write(window(1, 100))
    command.follow_record(path)
    shown = capsys.readouterr().out
    assert [shown.count(f"step {step} ") for step in (100, 200)] == [1, 2]


def test_a_record_that_was_moved_away_is_written_on_and_nobody_takes_its_name(path):
    writer = RecordWriter(path, header())
    mine = path.with_name("mine.watch.jsonl")
    path.rename(mine)
    with pytest.raises(
        UserError, match=rf"\(process {os.getpid()}, .* is going to write .*train.watch.jsonl"
    ):
        RecordWriter(path, header(id="b"))
    assert not path.exists()
    path.write_text("somebody else's")
    for number in range(12):
        writer.write(window(number * 100 + 1, number * 100 + 100))
    writer.close(keep=False)
    assert path.read_text() == "somebody else's"
    assert len(load_record(mine).windows) == 12


def test_a_record_of_the_first_schema_still_loads():
    record = load_record(Path(__file__).parents[2] / "golden" / "schema-1.watch.jsonl")
    assert (record.header.ranks, len(record.windows), len(record.alerts)) == (2, 7, 1)
    assert "rank 1's input" in render(page(record))


def test_nothing_is_written_over_and_who_writes_it_is_named(path):
    writer = RecordWriter(path, header())
    with pytest.raises(
        UserError, match=rf"\(process {os.getpid()}, .* is going to write .*train.watch.jsonl"
    ):
        RecordWriter(path, header())
    writer.close()
    with pytest.raises(UserError, match="is there already; name another record with --output"):
        RecordWriter(path, header())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "does not begin with its header"),
        ("no", "does not begin with its header"),
        ("[]\n", "line 1 is not a line of a watched run"),
        ('{"kind":"window"}\n', "line 1 is not a line of a watched run: began"),
        (header(watch_schema=9).model_dump_json() + "\n", "made by a newer Stash"),
    ],
)
def test_another_file_is_refused_in_one_sentence(path, content, why):
    path.write_text(content)
    with pytest.raises(ArtefactError, match=why):
        load_record(path)


def test_json_has_what_other_programs_rely_on(path):
    writer = RecordWriter(path, header())
    late = LateRank(rank=3, stage="input", seconds=0.03)
    for line in (window(1, 100), window(101, 200, 0.13, stragglers=[late.model_dump()]), alert(1)):
        writer.write(line)
    shown = json.loads(json.dumps(document(load_record(path))))
    assert shown["step_seconds"] == pytest.approx(0.115)
    stalls = {stall["name"]: stall for stall in shown["stalls"]}
    assert stalls["input"]["seconds"] == pytest.approx(0.045)
    assert stalls["input"]["rank"] == 3
    assert stalls["transfer"]["seconds"] is None
    assert sum(stall["seconds"] or 0 for stall in shown["stalls"]) == pytest.approx(
        shown["step_seconds"]
    )
    assert shown["stragglers"] == [{"rank": 3, "stage": "input", "seconds": 0.015, "node": None}]
    assert {
        key: shown["alerts"][0][key] for key in ("step", "stall", "rank", "ratio", "ended")
    } == {
        "step": 120,
        "stall": "input",
        "rank": 3,
        "ratio": 1.3,
        "ended": False,
    }
    assert [each["step_seconds"] for each in shown["windows"]] == [0.1, 0.13]


def test_the_page_shows_the_last_window_of_a_run_that_goes_on_and_all_of_one_that_ended(
    path,
):
    price = MachinePrice(instance="p4d", dollars_per_hour=36.0, source="a list")
    writer = RecordWriter(
        path,
        header(price=price.model_dump(), baseline="b.stash.json", baseline_stalls={"step": 0.1}),
    )
    for number in range(20):
        writer.write(window(number * 100 + 1, number * 100 + 100, 0.1 if number < 19 else 0.13))
    record = load_record(path)
    live = render(page(record, live=True))
    whole = render(page(record))
    assert "train.py | 4 ranks | step 2,000 | last 13 s: 100 steps" in live
    assert "130.0 ms" in live
    assert "A step takes 130% of the profile's (b.stash.json)" in live
    assert "101.5 ms" in whole
    assert "unknown: no copy to a device was seen" in whole
    assert "$2.03 at $36.00 an hour (a list)" in whole


def test_a_window_that_knows_of_no_other_work_counts_in_the_sum(path):
    """The first window has no *disturbed*; the table of both adds up all the same."""
    first = window(1, 100)
    second = window(101, 200)
    second = second.model_copy(
        update={"stalls": {**second.stalls, "input": 0.01, "disturbed": 0.02}}
    )
    found = sum_windows([first, second])
    assert sum(value or 0.0 for value in found.stalls.values()) == pytest.approx(found.step_seconds)
    assert found.stalls["disturbed"] == pytest.approx(0.01)


def test_of_one_rank_nobody_waits_for_another(path):
    RecordWriter(path, header(ranks=1)).write(window(1, 100))
    shown = page(load_record(path))
    assert [row.name for row in shown.rows] == ["compute", "transfer", "prep + fetch", "step"]
    assert shown.below_rows.endswith("does not apply to one rank: contention, interconnect")


def test_rows_are_called_as_a_profile_calls_them_and_those_that_cannot_be_split_say_so(
    path,
):
    RecordWriter(path, header(nodes=2)).write(window(1, 100))
    shown = page(load_record(path))
    assert [row.name for row in shown.rows] == [
        "compute",
        "contention",
        "transfer",
        "interconnect + network",
        "prep + fetch",
        "step",
    ]
    assert (
        "cannot tell prep from fetch and interconnect from network; `stash profile` can"
        in shown.below_rows
    )
    RecordWriter(path.with_name("one.watch.jsonl"), header()).write(window(1, 100))
    assert "interconnect" in [
        row.name for row in page(load_record(path.with_name("one.watch.jsonl"))).rows
    ]


def slowed(path):
    """A run of 40 windows of 10 s: steps of 100 ms, from step 1,951 to 2,900 of 200 ms; with a pause of 100 s."""
    writer = RecordWriter(path, header())
    now = 1e9 + 5
    for number in range(40):
        step = 0.2 if 20 <= number < 30 else 0.1
        now += 100 if number == 35 else 0
        writer.write(window(number * 100 + 1, number * 100 + 100, step, began=now))
        now += step * 100
    began = alert(1).model_copy(
        update={"step": 2001, "when": 1e9 + 215.0, "began": 1e9 + 215.0, "seconds": 0.1}
    )
    writer.write(began)
    writer.write(began.model_copy(update={"ended": True, "when": 1e9 + 410.0}))
    return load_record(path)


def test_the_page_draws_the_step_over_time_its_parts_and_where_alerts_began_and_ended(
    path,
):
    (chart,) = page(slowed(path)).charts
    length = 5 + 30 * 10 + 10 * 20 + 100
    end = length / 60
    assert chart.x.axis.label == "time since the watch began (min)"
    x = make_ruler((0.0, end), "").locate
    top = make_ruler((0.0, 200.0), "").locate
    bars = chart.bars
    assert {bar.series for bar in bars} == {"compute", "interconnect", "prep"}
    tops = {round(bar.x[0], 6): max(b.y[1] for b in bars if b.x == bar.x) for bar in bars}
    assert len(tops) == 40
    assert tops[round(x(5 / 60), 6)] == pytest.approx(top(100.0))
    assert tops[round(x(205 / 60), 6)] == pytest.approx(top(200.0))
    # at its step, not when it was told
    assert chart.rules == pytest.approx([205.0, 410.0])
    assert [tag.text for tag in chart.tags] == ["step 2,001: prep + fetch +100 ms"]
    # before the pause and after it
    assert len(chart.curves) == 2
    assert len(chart.table.rows) == 40


def test_a_day_is_drawn_in_few_columns_whose_steps_all_count(path):
    record = load_of(
        path,
        [
            window(n * 100 + 1, n * 100 + 100, 0.1 + 0.1 * (n % 2), began=1e9 + n * 15)
            for n in range(1000)
        ],
    )
    (chart,) = page(record).charts
    columns = {bar.x for bar in chart.bars}
    assert 100 <= len(columns) <= 120
    assert chart.x.axis.label == "time since the watch began (h)"
    assert chart.table.rows[0][1].startswith("14")  # of nine windows, four are of 200 ms


def load_of(path, lines):
    writer = RecordWriter(path, header())
    for line in lines:
        writer.write(line)
    return load_record(path)


def test_a_watch_ends_with_the_step_its_parts_and_each_alert_with_when_and_what(path):
    text = " ".join(render(summary(slowed(path), path.name), 120).split())
    assert "A step takes 125 ms. 44% of it is prep + fetch" in text
    assert "01:50:15 2,001 prep + fetch 3 100 ms 1.00 ms 01:53:30 steps are longer" in text
    assert "What happened" not in text
    quiet = load_of(path.with_name("quiet.watch.jsonl"), [window(1, 100)])
    assert "There was no alert." in summary(quiet, "").verdict


def test_a_run_that_ended_without_a_step_says_what_to_add_to_the_script():
    ended = RunRecord(header=header(ranks=None))
    text = " ".join(render(summary(ended, "hello.watch.jsonl")).split())
    assert "no step recorded yet" not in text
    assert "add `import stash` and call `stash.step()` after each update" in text
    assert "`stash.step()`" not in render(page(ended, live=True))
