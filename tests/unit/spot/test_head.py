"""The head of an asynchronous training: its clock, slow checkpoints; actors only answer."""

import json
import time
from dataclasses import replace

import pytest

from stash.core.errors import JobError
from stash.core.jsonl import Tail, append_row
from stash.spot.run_records import LeaseBooks
from stash.spot.train import head as module
from stash.spot.train.coordinator import NotFinite, UpdateDone
from stash.spot.train.head import TrainingHead
from stash.spot.train.ledger import DataLease
from stash.spot.train.run_orders import EVENTS, WISHES, TrainingOrders, WorkerPlace


class SlowToStart:
    """Actors of which the coordinator began five seconds ago and takes a while to answer for the first time."""

    began = time.monotonic() - 5

    def ask(self, what):
        assert what == "seconds"
        time.sleep(0.3)
        return time.monotonic() - self.began


def test_a_coordinator_that_is_slow_to_answer_does_not_shift_the_clock_of_events(
    tmp_path,
):
    orders = TrainingOrders(
        job="job.py:job",
        checkpoints=str(tmp_path),
        servers=("server1",),
        workers=(WorkerPlace("worker1", "t4", 8),),
        checkpoint_seconds=1.0,
    )
    fleet = SlowToStart()
    head = TrainingHead(orders, tmp_path, fleet)
    head._emit("began", "")
    (event,) = Tail(tmp_path / EVENTS).read_new_rows()
    assert 5 < event["at"] <= time.monotonic() - fleet.began


class _Fleet:
    """One server and one worker; a checkpoint is written once ``disk`` has been asked so often."""

    def __init__(self, folder, disk):
        self._wishes = folder / WISHES
        self._disk = disk
        self._asked = 0
        self._coming = [
            ("server1", True, (("", 1), 0, ())),
            ("worker1", True, None),
        ]
        self.asked = []
        self.hanging = []
        self.failure = None

    def ask(self, what, *words):
        self.asked.append(what)
        if what == "note_leaving":
            append_row(self._wishes, do="stop")
        elif what == "end":
            if self.asked.count("end") == 1:
                self._coming.append(("worker1", False, 3))
            return 0.0
        elif what == "take_updates":
            return (
                [UpdateDone(1.0, "worker1", 8, 0, 0.5)]
                if self.asked.count("take_updates") == 1
                else [],
                False,
                self.failure,
            )
        books = LeaseBooks(issued=8, done=8, out=0, waiting=0, reissued=0, repeated=0, wrong=None)
        return {"seconds": 0.0, "books": books, "reconcile": 0}.get(what)

    def start_server(self, name, number): ...

    def start_worker(self, place):
        self.asked.append(f"start {place.name}")

    def changes(self, seconds):
        time.sleep(0.001)
        coming = self._coming
        self._coming = []
        return coming

    def end_hanging(self):
        hanging = self.hanging
        self.hanging = []
        return hanging

    def kill(self, name):
        self.asked.append(f"kill {name}")

    def is_gone(self, error):
        return False

    def describe_error(self, who, error):
        return JobError(f"{who} failed: {error}")

    def applied_ranges(self, names):
        return [((0, 8),)]

    def begin_saving(self, names):
        self.asked.append("begin_saving")
        append_row(self._wishes, do="notice", who="worker1", seconds=3.0)

    def has_saved(self, seconds=0.0):
        self._asked += 1
        written = bool(seconds) or self._asked > self._disk
        if written:
            self.asked.append("saved")
        return written

    def save_model(self, names, path):
        path.write_bytes(b"saved")
        return True


def _orders(folder):
    return TrainingOrders(
        job="job.py:job",
        checkpoints=str(folder),
        servers=("server1",),
        workers=(WorkerPlace("worker1", "t4", 8),),
        checkpoint_seconds=0.0,
        model=str(folder / "model.pt"),
        replace=False,
    )


def test_a_notice_is_received_while_a_disk_is_slow_and_the_model_is_saved(tmp_path):
    fleet = _Fleet(tmp_path, disk=10**9)
    TrainingHead(_orders(tmp_path), tmp_path, fleet).run()
    assert (
        fleet.asked.index("begin_saving")
        < fleet.asked.index("note_leaving")
        < fleet.asked.index("saved")
    )
    # while one is being written no other begins; one is of the end
    assert fleet.asked.count("begin_saving") == 2
    events = Tail(tmp_path / EVENTS).read_new_rows()
    assert [each["what"] for each in events if each["what"] != "left"] == [
        "server joined",
        "joined",
        "began",
        "notice",
        "checkpoint",
        "checkpoint",
        "ended",
    ]
    assert (tmp_path / "model.pt").read_bytes() == b"saved"


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch):
    fleet = _Fleet(tmp_path, disk=0)

    def full(seconds=0.0):
        raise JobError("server1 failed: OSError: No space left on device")

    monkeypatch.setattr(fleet, "has_saved", full)
    with pytest.raises(JobError, match="No space left on device"):
        TrainingHead(_orders(tmp_path), tmp_path, fleet).run()


def test_gradients_that_are_not_finite_end_the_run_with_whose_they_were_and_keep_the_model(
    tmp_path,
):
    fleet = _Fleet(tmp_path, disk=0)
    fleet.failure = NotFinite("worker1", DataLease(0, 8), float("nan"))
    with pytest.raises(
        JobError, match=r"of worker1 on the samples 0 to 8 are not finite \(loss nan\).*kept"
    ):
        TrainingHead(_orders(tmp_path), tmp_path, fleet).run()
    assert (tmp_path / "model.pt").read_bytes() == b"saved"


def test_a_rented_worker_that_is_gone_is_awaited_under_its_name(tmp_path):
    """SkyPilot starts its machine again, whose Ray has the same name."""

    class Returning(_Fleet):
        lost = False

        def changes(self, seconds):
            if self.asked.count("take_updates") > 1 and not self.lost:
                self.lost = True
                return [("worker1", False, RuntimeError("its machine is gone"))]
            if self.asked.count("start worker1") == 2 and "end" not in self.asked:
                append_row(self._wishes, do="stop")
            return super().changes(seconds)

        def is_gone(self, error):
            return True

    fleet = Returning(tmp_path, disk=0)
    TrainingHead(replace(_orders(tmp_path), checkpoint_seconds=1e9), tmp_path, fleet).run()
    assert fleet.asked.count("start worker1") == 2
    what = [each["what"] for each in Tail(tmp_path / EVENTS).read_new_rows()]
    assert "lost" in what
    assert "wanted" not in what


def test_a_server_that_goes_while_it_saves_at_the_end_is_awaited_and_all_is_saved_again(tmp_path):
    class Leaving(_Fleet):
        gone = False

        def has_saved(self, seconds=0.0):
            if self.asked.count("begin_saving") and not self.gone:
                self.gone = True
                self._coming += [
                    ("server1", False, RuntimeError("its machine is gone")),
                    ("server2", True, (("", 2), 0, ())),
                ]
                return None
            return super().has_saved(seconds)

        def is_gone(self, error):
            return True

    fleet = Leaving(tmp_path, disk=0)
    append_row(tmp_path / WISHES, do="stop")
    TrainingHead(replace(_orders(tmp_path), checkpoint_seconds=1e9), tmp_path, fleet).run()
    assert fleet.asked.count("begin_saving") == 2
    events = [each["what"] for each in Tail(tmp_path / EVENTS).read_new_rows()]
    assert events[events.index("server lost") :] == [
        "server lost",
        "wanted",
        "server joined",
        "checkpoint",
        "ended",
    ]
    assert (tmp_path / "model.pt").read_bytes() == b"saved"


def test_a_rented_head_that_no_worker_comes_to_saves_and_ends(tmp_path, monkeypatch):
    """Whoever rented it may be gone, and its machine costs money for as long as it runs."""

    class Deserted(_Fleet):
        def changes(self, seconds):
            return [change for change in super().changes(seconds) if change[0] == "server1"]

    monkeypatch.setattr(module, "DESERTED_SECONDS", 0.1)
    fleet = Deserted(tmp_path, disk=0)
    TrainingHead(replace(_orders(tmp_path), checkpoint_seconds=1e9), tmp_path, fleet).run()
    last = Tail(tmp_path / EVENTS).read_new_rows()[-1]
    assert (last["what"], last["reason"]) == ("ended", "no worker was there for 0 min")
    assert "saved" in fleet.asked


def test_who_hangs_at_the_end_is_in_the_log(tmp_path):
    class Stuck(_Fleet):
        def changes(self, seconds):
            coming = [
                change for change in super().changes(seconds) if change != ("worker1", False, 3)
            ]
            if self.asked.count("take_updates") > 1 and "end" not in self.asked:
                append_row(self._wishes, do="stop")
                self.hanging = ["worker1"]
            if "end" in self.asked and "remove_worker" not in self.asked:
                coming.append(("worker1", False, RuntimeError("killed")))
            return coming

        def is_gone(self, error):
            return True

    fleet = Stuck(tmp_path, disk=0)
    TrainingHead(
        replace(_orders(tmp_path), replace=True, checkpoint_seconds=1e9), tmp_path, fleet
    ).run()
    what = [each["what"] for each in Tail(tmp_path / EVENTS).read_new_rows()]
    assert what[-4:] == ["hangs", "lost", "checkpoint", "ended"]


def test_whatever_goes_wrong_in_the_head_is_its_last_event(tmp_path, monkeypatch):
    class Broken:
        def __init__(self, orders): ...

        def ask(self, what):
            raise ZeroDivisionError("by nothing")

        def close(self): ...

    monkeypatch.setattr("stash.spot.train.actors.ActorFleet", Broken)
    monkeypatch.setattr(module, "read_orders", lambda folder: _orders(tmp_path))
    with pytest.raises(ZeroDivisionError):
        module.main(tmp_path)
    (event,) = [json.loads(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert (event["what"], event["why"], event["exit_code"]) == (
        "failed",
        "the head failed: ZeroDivisionError: by nothing",
        1,
    )
