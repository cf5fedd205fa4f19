"""A node's watcher over rings that a test writes, with a clock of its own: windows, alerts, and a run that stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from watched_rings import Run

from stash.core.errors import UserError
from stash.measure.protocol import stamped
from stash.measure.protocol.stamped import StepStage
from stash.monitor.baseline import RunBaseline
from stash.monitor.money import bill, lost_a_day, price_of
from stash.monitor.records import Header, MachinePrice, Window
from stash.monitor.trackers import Tracker, tracker
from stash.monitor.watch_metrics import FAMILIES, OPENMETRICS, TEXT, Metrics, MetricsServer
from stash.monitor.watcher import WatchOptions, words_of


@pytest.mark.usefixtures("unix_is_monotonic")
def test_windows_add_up_and_a_late_rank_is_one_alert_that_ends(tmp_path: Path) -> None:
    run = Run(tmp_path, WatchOptions(on_alert="notify --who me"))
    run.train(40)
    run.train(30, late=lambda rank: 0.05 * rank)
    run.train(30)
    record = run.record()
    assert record.header.ranks == 2
    for window in record.windows:
        assert sum(value or 0.0 for value in window.stalls.values()) == pytest.approx(window.step_seconds)
        assert window.seconds >= 10
    (alert,) = record.alerts
    assert (alert.stall, alert.rank, alert.stage, alert.ended) == ("input", 1, "input", True)
    assert alert.ratio == pytest.approx(1.5, abs=0.01)
    slow = [window for window in record.windows if window.stragglers]
    assert {(late.rank, late.stage) for window in slow for late in window.stragglers} == {(1, "input")}
    assert [started.words for started in run.started] == [["notify", "--who", "me"]] * 2
    first = json.loads(run.started[0].stdin.getvalue())
    assert (first["stall"], first["rank"], first["ended"]) == ("input", 1, False)
    assert first["step"] == pytest.approx(401, abs=3)


@pytest.mark.usefixtures("unix_is_monotonic")
def test_of_a_run_that_stands_it_is_told_where_each_rank_is(tmp_path: Path) -> None:
    run = Run(tmp_path, WatchOptions(stuck_after=120))
    run.train(30)
    run.rings[0].live[0], run.rings[1].live[0] = StepStage.EXCHANGE, StepStage.INPUT
    run.stand(119)
    assert run.record().alerts == []
    run.stand(10)
    (alert,) = run.record().alerts
    assert alert.text == "no step for 120 s: rank 0: wait for the exchange; rank 1: wait for input"
    assert (alert.what, alert.rank) == ("nothing moves", 1)
    run.train(5)
    assert run.record().alerts[0].ended


@pytest.mark.usefixtures("unix_is_monotonic")
def test_a_run_that_has_ended_does_not_stand(tmp_path: Path) -> None:
    run = Run(tmp_path, WatchOptions(stuck_after=20))
    run.train(30)
    for ring in run.rings:
        ring.live[1] = 1.0
    run.stand(60)
    assert run.record().alerts == []


@pytest.mark.usefixtures("unix_is_monotonic")
def test_money_warns_at_four_fifths_and_the_command_runs_once_at_the_cap(tmp_path: Path) -> None:
    price = MachinePrice(instance="p4d", dollars_per_hour=36.0)  # a cent a second
    run = Run(tmp_path, WatchOptions(max_dollars=0.5, on_budget="stop"), price=price)
    run.train(39)
    assert run.record().alerts == []
    run.train(3)
    run.train(30)
    assert [alert.what for alert in run.record().alerts] == ["money", "money"]
    assert [started.words for started in run.started] == [["stop"]]
    assert json.loads(run.started[0].stdin.getvalue())["dollars"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.usefixtures("unix_is_monotonic")
def test_a_profile_of_as_many_ranks_is_needed(tmp_path: Path) -> None:
    stalls = {"compute": 0.04, "contention": 0.0, "exchange": 0.02, "input": 0.0, "step": 0.06}
    run = Run(tmp_path, baseline=RunBaseline("b.stash.json", "train.py", 8, stalls, stalls))
    run.train(60)
    record = run.record()
    assert [event.what for event in record.events] == ["no baseline"]
    assert record.alerts == []
    (tmp_path / "again").mkdir()
    same = Run(tmp_path / "again", baseline=RunBaseline("b.stash.json", "train.py", 2, stalls, stalls))
    same.train(60)
    assert [(alert.stall, alert.ended) for alert in same.record().alerts] == [("compute", False)]


def test_a_rank_that_was_killed_or_gave_up_is_an_event(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.rings[0].note("stash: this rank is not watched any more")
    stamped._FIXED.pack_into(run.rings[1]._memory, 0, stamped._MAGIC, 1, 2, 1, 0, 2**22 + 1, 0.0)
    run.watcher.poll()
    assert sorted(event.what for event in run.record().events) == ["lost", "note"]


def window(first: int, seconds: float = 10.0) -> Window:
    stalls = {"compute": 0.06, "transfer": None, "input": 0.04}
    return Window(
        began=1e9 + first / 10, seconds=seconds, first_step=first, last_step=first + 99, steps=100, step_seconds=0.1,
        stalls=stalls, ranks={0: {"forward": 0.06}},
    )  # fmt: skip


def test_a_bill_is_what_passed_and_what_is_left() -> None:
    price = MachinePrice(instance="p4d", dollars_per_hour=3600.0)
    even = bill(price, 200.0, [window(100 * n) for n in range(20)], 2000, 10_000)
    assert (even.so_far, even.forecast, even.plus_minus) == pytest.approx((200, 1000, 0))
    mixed = bill(price, 200.0, [window(100 * n, 9.0 + n % 2 * 2) for n in range(20)], 2000, 10_000)
    assert mixed.forecast == pytest.approx(1000)
    assert bill(price, 200.0, [window(0)], 100, 10_000).forecast is None
    assert lost_a_day(window(0), price) == pytest.approx({"input": 0.4 * 86400})


def test_metrics_are_openmetrics_or_the_older_text_on_loopback() -> None:
    server = MetricsServer(0, Header(id="x", stash_version="1", began=1e9, job="/secret/place/train.py", ranks=2))
    try:
        server.take(window(1))
        server.take(window(101))
        address = f"http://127.0.0.1:{server._server.server_address[1]}/metrics"
        for accepts, kind in (("application/openmetrics-text", OPENMETRICS), ("text/plain", TEXT)):
            with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept": accepts})) as answer:
                text = answer.read().decode()
                assert answer.headers["Content-Type"] == kind
            assert 'stash_exposed_seconds_total{stall="input"} 8.0\n' in text
            assert 'stash_rank_seconds_total{rank="0",stage="forward"} 12.0\n' in text
            assert "stash_steps_total 200\n" in text
            assert "/secret" not in text
            assert text.endswith("# EOF\n") == (kind == OPENMETRICS)
            assert "transfer" not in text
        with pytest.raises(UserError, match="choose another port"):
            MetricsServer(server._server.server_address[1], Header(id="x", stash_version="1", began=0, job="x"))
    finally:
        server.close()


def test_another_implementation_reads_the_metrics() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    metrics = Metrics(Header(id="x", stash_version="1", began=1e9, job="a", ranks=2, baseline_stalls={"step": 0.05}))
    metrics.take(window(1))
    families = {each.name: each for each in parser.text_string_to_metric_families(metrics.text())}
    assert families["stash_baseline_ratio"].samples[0].value == pytest.approx(2)
    assert set(families) >= {"stash_run", "stash_steps", "stash_exposed_seconds", "stash_alerts_open"}


def test_a_tracker_that_fails_gets_what_was_kept_later_and_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    got: list[int] = []
    down = [True]

    def log(step: int, values: dict[str, float]) -> None:
        if down[0]:
            raise ConnectionError("no route")
        got.append(step)

    one = Tracker("W&B", log)
    one.take(window(1))
    one.take(window(101))
    down[0] = False
    one.take(window(201))
    assert got == [100, 200, 300]
    assert capsys.readouterr().err.count("no route") == 1


@pytest.mark.parametrize("where", ["tensorboard", "neptune:x", "wandb:"])
def test_another_tool_is_refused(where: str) -> None:
    with pytest.raises(UserError, match="write tensorboard:DIR"):
        tracker(where, Header(id="x", stash_version="1", began=0, job="x"))


@pytest.mark.parametrize("command", ["", "echo 'a"])
def test_a_command_that_is_none_is_refused(command: str) -> None:
    with pytest.raises(UserError, match="command"):
        words_of(command)


def test_every_query_of_the_grafana_dashboard_is_about_what_is_exported() -> None:
    dashboard = json.loads((Path(__file__).parents[3] / "docs" / "how-to" / "watch-grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    ends = {"counter": "_total", "info": "_info"}
    exported = {f"{name}{ends.get(kind, '')}" for name, (kind, _, _) in FAMILIES.items()}
    assert {name for query in queries for name in re.findall(r"\bstash_\w+", query)} == exported
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_machine_says_what_it_costs_where_its_firmware_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from stash.measure.host import cloud

    monkeypatch.setattr(cloud, "rented", lambda *_: cloud.Rented("aws", "p4d.24xlarge", "dmi"))
    found = price_of(None, 2)
    assert found is not None
    assert (found.instance, found.dollars_per_hour > 10) == ("p4d.24xlarge", True)
    monkeypatch.setattr(cloud, "rented", lambda *_: cloud.Rented("aws", "none.such", "dmi"))
    assert price_of(None, 1) is None
    monkeypatch.setattr(cloud, "rented", lambda *_: cloud.Rented())
    assert price_of(None, 1) is None
    with pytest.raises(UserError, match="does not say what it is; add --instance"):
        price_of(None, 1, needed=True)
    with pytest.raises(UserError, match=r"none\.such"):
        price_of("none.such", 1)


def test_a_watcher_loads_no_library_that_it_can_do_without() -> None:
    code = "import stash.monitor.watcher, sys; print({'scipy.stats', 'torch', 'rich'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
