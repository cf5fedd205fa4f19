"""A node's watcher over rings that a test writes, with a clock of its own: windows, alerts, and a run that stands."""

import json
import re
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from watched_rings import Run

from stash.core.errors import UserError
from stash.core.records.circumstances import MachinePrice
from stash.measure.agent import private
from stash.measure.agent.runner import watch_duties
from stash.measure.protocol import stamped
from stash.measure.protocol.orders import WatchRequest
from stash.measure.protocol.stamped import StepRing
from stash.monitor import trackers
from stash.monitor.baseline import RunBaseline
from stash.monitor.money import forecast_bill, lost_a_day, price_of
from stash.monitor.records import Header, Window
from stash.monitor.trackers import Tracker, open_tracker
from stash.monitor.watch_metrics import FAMILIES, OPENMETRICS, TEXT, MetricsServer
from stash.monitor.watch_state import WatchOptions
from stash.monitor.watcher import recorders_text, words_of
from stash.monitor.window_sums import sum_windows


@pytest.mark.usefixtures("unix_is_monotonic")
def test_windows_add_up_and_a_late_rank_is_one_alert_that_ends(tmp_path):
    run = Run(tmp_path, WatchOptions(on_alert="notify --who me"))
    run.train(40)
    run.train(30, late=lambda rank: 0.05 * rank)
    run.train(30)
    record = run.record()
    assert record.header.ranks == 2
    for window in record.windows:
        assert sum(value or 0.0 for value in window.stalls.values()) == pytest.approx(
            window.step_seconds
        )
        assert window.seconds >= 10
    (alert,) = record.alerts
    assert (alert.stall, alert.rank, alert.stage, alert.ended) == ("input", 1, "input", True)
    assert alert.ratio == pytest.approx(1.5, abs=0.01)
    slow = [window for window in record.windows if window.stragglers]
    assert {(late.rank, late.stage) for window in slow for late in window.stragglers} == {
        (1, "input")
    }
    assert [started.words for started in run.started] == [["notify", "--who", "me"]] * 2
    first = json.loads(run.started[0].stdin.getvalue())
    assert (first["stall"], first["rank"], first["ended"]) == ("input", 1, False)
    assert first["step"] == pytest.approx(401, abs=3)


def test_a_flight_recorder_says_which_rank_is_missing():
    text = recorders_text(Path("tests/recorded/flight/skip"))
    assert text.startswith("Rank 1 never joined collective 9")
    assert "Of 2 ranks: `stash trace flight/skip --flight-recorder`" in text


def test_a_rank_that_stands_writes_its_flight_recorder_when_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(watch_duties, "_RECORDER_SECONDS", 0.01)
    monkeypatch.setattr(private, "recorded_collectives", lambda: b"a dump")
    folder = tmp_path / "run"
    folder.mkdir()
    live = [0.0, 0.0, 0.0]
    thread = watch_duties.write_recorders_when_asked(
        SimpleNamespace(ring=SimpleNamespace(live=live)), folder, 3
    )
    WatchRequest(1, recorders=str(tmp_path / "to")).write(folder)
    time.sleep(0.02)
    live[2] = 1.0
    written = tmp_path / "to" / "nccl_trace_rank_3"
    until = time.monotonic() + 10
    while not written.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert written.read_bytes() == b"a dump"
    (folder / "request.json").unlink()
    folder.rmdir()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.usefixtures("unix_is_monotonic")
def test_a_run_that_has_ended_does_not_stand(tmp_path):
    run = Run(tmp_path, WatchOptions(stuck_after=20))
    run.train(30)
    for ring in run.rings:
        ring.live[1] = 1.0
    run.set_standing(60)
    assert run.record().alerts == []


@pytest.mark.usefixtures("unix_is_monotonic")
def test_a_profile_of_as_many_ranks_is_needed(tmp_path):
    stalls = {"compute": 0.04, "contention": 0.0, "exchange": 0.02, "input": 0.0, "step": 0.06}
    run = Run(tmp_path, baseline=RunBaseline("b.stash.json", 8, stalls, stalls))
    run.train(60)
    record = run.record()
    assert [event.what for event in record.events] == ["no baseline"]
    assert record.alerts == []
    (tmp_path / "again").mkdir()
    same = Run(tmp_path / "again", baseline=RunBaseline("b.stash.json", 2, stalls, stalls))
    same.train(60)
    assert [(alert.stall, alert.ended) for alert in same.record().alerts] == [("compute", False)]


def test_a_rank_that_was_killed_or_gave_up_is_an_event(tmp_path):
    run = Run(tmp_path)
    run.rings[0].note("stash: this rank is not watched any more")
    stamped._FIXED.pack_into(run.rings[1]._memory, 0, stamped._MAGIC, 1, 2, 1, 0, 2**22 + 1, 0.0)
    run.watcher.poll()
    assert sorted(event.what for event in run.record().events) == ["lost", "note"]


def window(first, seconds=10.0):
    stalls = {"compute": 0.06, "transfer": None, "input": 0.04}
    return Window(
        began=1e9 + first / 10,
        seconds=seconds,
        first_step=first,
        last_step=first + 99,
        steps=100,
        step_seconds=0.1,
        stalls=stalls,
        ranks={0: {"forward": 0.06}},
    )


def test_a_bill_is_what_passed_and_what_is_left():
    price = MachinePrice(instance="p4d", dollars_per_hour=3600.0)
    even = forecast_bill(price, 200.0, [window(100 * n) for n in range(20)], 2000, 10_000)
    assert (even.so_far, even.forecast, even.plus_minus) == pytest.approx((200, 1000, 0))
    mixed = forecast_bill(
        price, 200.0, [window(100 * n, 9.0 + n % 2 * 2) for n in range(20)], 2000, 10_000
    )
    assert mixed.forecast == pytest.approx(1000)
    assert forecast_bill(price, 200.0, [window(0)], 100, 10_000).forecast is None
    assert lost_a_day(window(0), price) == pytest.approx({"input": 0.4 * 86400})


def test_metrics_are_openmetrics_or_the_older_text_on_loopback():
    server = MetricsServer(
        0, Header(id="x", stash_version="1", began=1e9, job="/secret/place/train.py", ranks=2)
    )
    try:
        server.receive_line(window(1))
        server.receive_line(window(101))
        address = f"http://127.0.0.1:{server._server.server_address[1]}/metrics"
        for accepts, kind in (("application/openmetrics-text", OPENMETRICS), ("text/plain", TEXT)):
            with urllib.request.urlopen(
                urllib.request.Request(address, headers={"Accept": accepts})
            ) as answer:
                text = answer.read().decode()
                assert answer.headers["Content-Type"] == kind
            assert 'stash_exposed_seconds_total{stall="input"} 8.0\n' in text
            assert 'stash_rank_seconds_total{rank="0",stage="forward"} 12.0\n' in text
            assert "stash_steps_total 200\n" in text
            assert "/secret" not in text
            assert text.endswith("# EOF\n") == (kind == OPENMETRICS)
            assert "transfer" not in text
        with pytest.raises(UserError, match="choose another port"):
            MetricsServer(
                server._server.server_address[1],
                Header(id="x", stash_version="1", began=0, job="x"),
            )
    finally:
        server.close()


def test_a_tracker_that_fails_gets_what_was_kept_later_and_warns_once(
    capsys,
):
    got = []
    down, tried = [True], threading.Semaphore(0)

    def log(rows):
        tried.release()
        if down[0]:
            raise ConnectionError("no route")
        got.extend(step for step, _ in rows)

    one = Tracker("W&B", SimpleNamespace(log=log, end=lambda: None))
    for first in (1, 101):
        one.receive_line(window(first))
        assert tried.acquire(timeout=10)
    down[0] = False
    one.receive_line(window(201))
    one.close()
    assert got == [100, 200, 300]
    assert capsys.readouterr().err.count("no route") == 1


def test_a_tracker_that_hangs_keeps_neither_the_record_nor_the_end_waiting(monkeypatch, capsys):
    """MLflow's client tries a server that is gone for minutes, at every window."""
    monkeypatch.setattr(trackers, "_ENDS_SECONDS", 0.1)
    ended, answers = [], threading.Event()
    one = Tracker(
        "MLflow", SimpleNamespace(log=lambda rows: answers.wait(60), end=lambda: ended.append(1))
    )
    began = time.monotonic()
    for first in (1, 101, 201):
        one.receive_line(window(first))
    one.close()
    assert time.monotonic() - began < 30
    answers.set()
    assert not ended
    assert "MLflow: it does not answer, and lacks the last windows" in capsys.readouterr().err


@pytest.mark.usefixtures("unix_is_monotonic")
@pytest.mark.parametrize("events", [["lost"], []])
def test_ranks_that_go_on_without_one_that_is_gone_are_watched_on(tmp_path, events):
    run = Run(tmp_path, WatchOptions(stuck_after=30))
    run.train(30)
    if events:
        run.watcher.collector.ranks[1].reader.process = 2**22 + 1  # killed
    else:
        run.rings[1].live[1] = 1.0  # it had fewer batches
    run.rings.pop()
    run.train(60)
    record = run.record()
    assert [event.what for event in record.events] == events
    assert record.alerts == []
    assert list(record.windows[-1].ranks) == [0]
    assert record.windows[-1].last_step > 700


@pytest.mark.usefixtures("unix_is_monotonic")
def test_a_job_that_was_started_again_counts_from_one_and_its_sum_has_all_steps(
    tmp_path,
):
    run = Run(tmp_path)
    run.train(60)
    for rank in range(2):
        run.watcher.collector.ranks[rank].reader.process = 2**22 + 1
    run.rings = [StepRing(tmp_path / f"ring.{rank}.again", rank, 2, rank, 0) for rank in range(2)]
    run._number = 0
    run.train(30)
    assert run.watcher.collector.taken == run._number < 400
    assert {path.name for path in tmp_path.glob("ring.*")} == {"ring.0.again", "ring.1.again"}
    record = run.record()
    whole = sum_windows(record.windows)
    assert whole.last_step <= run._number
    assert (
        whole.last_step - whole.first_step + 1
        == sum(w.last_step - w.first_step + 1 for w in record.windows)
        > 700
    )


@pytest.mark.parametrize("where", ["tensorboard", "neptune:x", "wandb:"])
def test_another_tool_is_refused(where):
    with pytest.raises(UserError, match="write tensorboard:DIR"):
        open_tracker(where, Header(id="x", stash_version="1", began=0, job="x"))


@pytest.mark.parametrize("command", ["", "echo 'a"])
def test_a_command_that_is_none_is_refused(command):
    with pytest.raises(UserError, match="command"):
        words_of(command)


def test_every_query_of_the_grafana_dashboard_is_about_what_is_exported():
    dashboard = json.loads(
        (Path(__file__).parents[3] / "docs" / "how-to" / "watch-grafana.json").read_text()
    )
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [
        each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"
    ]
    ends = {"counter": "_total", "info": "_info"}
    exported = {f"{name}{ends.get(kind, '')}" for name, (kind, _) in FAMILIES.items()}
    assert {name for query in queries for name in re.findall(r"\bstash_\w+", query)} == exported
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_machine_says_what_it_costs_where_its_firmware_does(
    monkeypatch,
):
    from stash.measure.host import cloud

    monkeypatch.setattr(
        cloud, "find_rental", lambda *_: cloud.RentedMachine("aws", "p4d.24xlarge", "dmi")
    )
    found = price_of(None, 2)
    assert (found.instance, found.dollars_per_hour > 10) == ("p4d.24xlarge", True)
    monkeypatch.setattr(
        cloud, "find_rental", lambda *_: cloud.RentedMachine("aws", "none.such", "dmi")
    )
    assert price_of(None, 1) is None
    monkeypatch.setattr(cloud, "find_rental", lambda *_: cloud.RentedMachine())
    assert price_of(None, 1) is None
    with pytest.raises(UserError, match="does not say what it is; add --instance"):
        price_of(None, 1, needed=True)
    with pytest.raises(UserError, match=r"none\.such"):
        price_of("none.such", 1)
