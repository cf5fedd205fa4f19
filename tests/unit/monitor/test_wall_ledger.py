"""The account of a whole watched run: every second in one row, restarts, lost work and dollars included."""

import pytest

from stash.core.errors import UserError
from stash.core.records.circumstances import MachinePrice
from stash.monitor.page import document, epilog, page
from stash.monitor.records import (
    Alert,
    Header,
    RecordWriter,
    RunEvent,
    RunRecord,
    Window,
    load_record,
)
from stash.monitor.wall_ledger import wall_ledger
from stash.ui.terminal import render

BEGAN = 1e9


def header(**more):
    return Header.model_validate(
        {"id": "a", "stash_version": "1", "began": BEGAN, "job": "train.py", "ranks": 1} | more
    )


def window(after, first_step=1, saved_step=None, **stalls):
    """Ten steps of two seconds: a second of ``other``, the rest as given or compute."""
    rest = 1.0 - sum(stalls.values())
    named = {name.replace("_", " "): seconds for name, seconds in stalls.items()}
    return Window(
        began=BEGAN + after,
        seconds=20.0,
        first_step=first_step,
        last_step=first_step + 9,
        steps=10,
        step_seconds=2.0,
        saved_step=saved_step,
        stalls={"compute": rest, "other": 1.0, **named},
    )


def event(after, what, code=None):
    return RunEvent(when=BEGAN + after, what=what, code=code)


def ledger(*lines, head=None):
    """Seconds by row, which sum to the wall."""
    record = RunRecord(head or header())
    for line in lines:
        record.add_line(line)
    found = wall_ledger(record)
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.seconds)
    return {row.name: row.seconds for row in found.rows}


def test_every_second_from_the_command_to_the_end_has_a_row():
    rows = ledger(
        window(5.0, evaluation=0.5, epoch_start=0.1),
        window(26.0, first_step=11),
        event(50.0, "end", 0),
    )
    assert rows == pytest.approx(
        {
            "start-up": 5,
            "compute": 14,
            "other": 20,
            "epoch start": 1,
            "evaluation": 5,
            "not read": 1,
            "end": 4,
        }
    )


def test_what_came_after_the_last_checkpoint_is_lost_where_the_job_is_started_again():
    rows = ledger(
        window(5.0, checkpoint=0.1, saved_step=9),
        window(25.0, first_step=11),
        event(46.0, "end", 137),
        event(56.0, "continued"),
        window(60.0),
        event(80.0, "end", 0),
    )
    expected = {
        "start-up": 9,
        "compute": 18.1,
        "other": 19,
        "checkpoint": 0.9,
        "lost work": 22,
        "end": 1,
        "down": 10,
    }
    assert rows == pytest.approx(expected)


def test_a_start_that_had_ended_well_has_lost_nothing():
    rows = ledger(
        window(5.0, checkpoint=0.1), event(25.0, "end", 0), event(56.0, "continued"), window(60.0)
    )
    assert "lost work" not in rows
    assert rows["down"] == pytest.approx(31)


def test_without_a_checkpoint_nobody_knows_what_is_lost():
    record = RunRecord(header())
    for line in (window(5.0), event(25.0, "end", 1), event(30.0, "continued"), window(31.0)):
        record.add_line(line)
    assert wall_ledger(record).loses_unknown_work
    assert any("no checkpoint was seen" in warning for warning in page(record).warnings)


def test_a_gap_is_what_the_event_within_it_says():
    rows = ledger(
        window(0.0, saved_step=10),
        window(20.0, first_step=11),
        event(45.0, "restarted"),
        window(47.0),
        event(67.0, "paused"),
        window(87.0, first_step=21),
        event(107.0, "end", 0),
    )
    assert (rows["restart"], rows["paused"], rows["lost work"]) == pytest.approx((7, 20, 20))


def test_dollars_are_those_of_the_machine_from_its_start_on():
    price = MachinePrice(instance="p4d", dollars_per_hour=36.0)
    head = header(price=price, booted=BEGAN - 60.0)
    record = RunRecord(head)
    for line in (window(5.0), event(25.0, "end", 0)):
        record.add_line(line)
    wall = document(record)["wall"]
    assert (wall["seconds"], wall["dollars"], wall["exit_code"]) == pytest.approx((85.0, 0.85, 0))
    assert sum(row["dollars"] for row in wall["rows"]) == pytest.approx(wall["dollars"])
    assert wall["rows"][0]["name"] == "before the run"
    text = render(page(record), 100, False)
    assert "The whole run" in text
    assert "$0.60" in text


def test_an_epilog_is_one_line_with_how_it_ended_and_where_the_time_went():
    record = RunRecord(header())
    for line in (window(5.0, evaluation=0.5), event(25.0, "end", 3)):
        record.add_line(line)
    text = "train.py 25 s, exit 3: between steps 40%, start-up 20%, compute 20%, evaluation 20%"
    assert epilog(record) == text


def write(path, lines, goes_on=False, **more):
    writer = RecordWriter(path, header(**more), goes_on=goes_on)
    for line in lines:
        writer.write(line)
    writer.close()


def test_a_job_that_is_started_again_goes_on_in_its_record(tmp_path):
    path = tmp_path / "train.watch.jsonl"
    alert = Alert(number=1, when=BEGAN + 9, what="slower", step=3)
    write(path, [window(5.0), alert])
    with path.open("a") as file:
        file.write('{"kind":"window","beg')  # its writer was killed
    write(path, [event(40.0, "continued"), window(42.0)], goes_on=True, id="b", began=BEGAN + 40)
    record = load_record(path)
    assert (record.header.id, record.header.began) == ("a", BEGAN)
    assert [each.began - BEGAN for each in record.windows] == [5.0, 42.0]
    assert [each.number for each in record.alerts] == [1]


def test_the_record_of_another_job_is_left_alone(tmp_path):
    path = tmp_path / "train.watch.jsonl"
    write(path, [window(5.0)])
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"is the record of train\.py, and this is other\.py"):
        write(path, [], goes_on=True, job="other.py")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("loaders", "stalls", "sentence"),
    [
        (("Samples",), {}, "50% of it lies between steps: `stash profile` names the lines."),
        ((), {"evaluation": 0.4}, "20% of it goes into evaluation: `stash profile` says why"),
        (("Samples",), {"checkpoint": 1.2}, "60% of it goes into saving checkpoints"),
    ],
    ids=["own-lines", "no-loader-is-seen", "checkpoints"],
)
def test_what_takes_most_of_the_run_stands_on_top(loaders, stalls, sentence):
    record = RunRecord(header(loaders=loaders))
    record.add_line(window(5.0, **stalls))
    assert sentence in page(record).verdict[0]
