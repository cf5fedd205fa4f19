"""Notices by metadata services that are played, and by SIGTERM: received once, in time, and never made up."""

import json
import os
import signal
import threading
import time
from email.utils import formatdate

import pytest

from stash.measure.host import notices
from stash.measure.host.cloud import LINK_LOCAL, ServiceAnswer
from stash.measure.host.notices import (
    AwsNotices,
    AzureNotices,
    GcpNotices,
    Notice,
    NoticeWatch,
    PendingEvent,
    compare_events,
    find_services,
    sigterm_as_notice,
)

NOW = 1_800_000_000.0


class Service:
    """A metadata service: answers as its test says, and remembers what it was asked."""

    def __init__(self):
        self.answer = lambda method, path, headers: (404, "", {})
        self.asked = []

    def __call__(self, url, headers, method, seconds):
        path = url.removeprefix(LINK_LOCAL)
        self.asked.append((method, path))
        status, body, named = self.answer(method, path, headers)
        return ServiceAnswer(status, body, {name.lower(): value for name, value in named.items()})


@pytest.fixture
def service(monkeypatch):
    fake = Service()
    monkeypatch.setattr(notices, "answer_over_http", fake)
    return fake


def clock():
    return NOW


class Amazon:
    """EC2's part of it: a token that may expire, and what there is below it."""

    def __init__(self):
        self.tokens, self.documents, self.date = ["one"], {}, ""

    def __call__(self, method, path, headers):
        if path == "/latest/api/token":
            assert method == "PUT"
            return 200, self.tokens[-1], {}
        if headers.get("X-aws-ec2-metadata-token") != self.tokens[-1]:
            return 401, "", {}
        body = self.documents.get(path.removeprefix("/latest/meta-data/"))
        return (
            (404, "", {}) if body is None else (200, body, {"Date": self.date} if self.date else {})
        )


def iso(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def test_aws_reports_nothing_by_404_then_the_end_two_minutes_ahead(service):
    service.answer = amazon = Amazon()
    aws = AwsNotices(clock)
    assert aws.fetch_events() == {}
    amazon.documents["spot/instance-action"] = json.dumps(
        {"action": "terminate", "time": iso(NOW + 120)}
    )
    assert aws.fetch_events() == {
        "action": PendingEvent("revoked", "aws", iso(NOW + 120), NOW + 120)
    }
    amazon.documents["events/recommendations/rebalance"] = json.dumps({"noticeTime": iso(NOW - 1)})
    assert aws.fetch_events()["rebalance"] == PendingEvent(
        "at risk", "aws rebalance", iso(NOW - 1), None
    )
    assert [path for method, path in service.asked if method == "PUT"] == ["/latest/api/token"]


def test_an_expired_token_is_renewed_within_the_same_question(service):
    service.answer = amazon = Amazon()
    aws = AwsNotices(clock)
    aws.fetch_events()
    amazon.tokens.append("two")
    amazon.documents["spot/instance-action"] = json.dumps({"action": "stop", "time": iso(NOW + 60)})
    assert aws.fetch_events()["action"].deadline == NOW + 60
    assert len([path for method, path in service.asked if method == "PUT"]) == 2


def test_a_deadline_is_told_by_our_clock_whatever_the_service_takes_the_time_to_be(
    service,
):
    service.answer = amazon = Amazon()
    amazon.date = formatdate(NOW + 3600, usegmt=True)  # our clock is an hour late
    amazon.documents["spot/instance-action"] = json.dumps(
        {"action": "terminate", "time": iso(NOW + 3600 + 120)}
    )
    assert AwsNotices(clock).fetch_events()["action"].deadline == NOW + 120


@pytest.mark.parametrize("text", ["{", "[1]", "null", '"terminate"', "[" * 5000])
def test_a_malformed_answer_is_no_notice(service, text):
    service.answer = amazon = Amazon()
    amazon.documents["spot/instance-action"] = text
    with pytest.raises(ValueError):
        AwsNotices(clock).fetch_events()


def test_a_notice_without_a_time_that_can_be_read_is_a_notice_all_the_same(service):
    service.answer = amazon = Amazon()
    amazon.documents["spot/instance-action"] = '{"action": "terminate", "time": "soon"}'
    assert AwsNotices(clock).fetch_events()["action"] == PendingEvent(
        "revoked", "aws", "soon", None
    )


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_service_that_refuses_or_fails_has_not_answered(service, status):
    service.answer = lambda method, path, headers: (status, "", {})
    for asking in (AwsNotices, GcpNotices, AzureNotices):
        with pytest.raises(OSError, match=str(status)):
            asking(clock).fetch_events()


def test_gcp_is_asked_what_is_and_then_waits_for_what_changes(service):
    def answer(method, path, headers):
        assert headers["Metadata-Flavor"] == "Google"
        if "wait_for_change=true" in path:
            assert "last_etag=a%2Fb" in path
            return 200, "TRUE", {}
        return 200, "FALSE", {"ETag": "a/b"}

    service.answer = answer
    gcp = GcpNotices(clock)
    assert gcp.fetch_events() == {}
    assert gcp.fetch_events() == {"preempted": PendingEvent("revoked", "gcp", "TRUE", NOW + 30)}


def test_gcp_without_an_etag_is_asked_again_not_waited_for(service):
    service.answer = lambda method, path, headers: (200, "FALSE", {})
    gcp = GcpNotices(clock)
    gcp.fetch_events(), gcp.fetch_events()
    assert not any("wait" in path for _, path in service.asked)
    service.answer = lambda method, path, headers: (200, "<html>", {})
    with pytest.raises(ValueError, match="HTML"):
        gcp.fetch_events()


class Azure:
    """Scheduled events."""

    def __init__(self):
        self.events = []

    def __call__(self, method, path, headers):
        assert headers["Metadata"] == "true"
        if "/compute/name" in path:
            return 200, "worker_1", {}
        return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events}), {}


def event(kind="Preempt", machine="worker_1", ahead=30, **more):
    fields = {
        "EventId": "e1",
        "EventType": kind,
        "EventStatus": "Scheduled",
        "Resources": [machine],
    }
    return {**fields, "NotBefore": formatdate(NOW + ahead, usegmt=True), **more}


def test_of_azures_events_those_count_that_end_this_machine(service):
    service.answer = azure = Azure()
    asked = AzureNotices(clock)
    azure.events = [event(machine="worker_2"), event("Freeze"), "nonsense", {"EventId": "e2"}]
    assert asked.fetch_events() == {}
    azure.events = [event(EventStatus="Started", NotBefore="")]
    assert asked.fetch_events() == {"e1": PendingEvent("revoked", "azure", "Started", NOW)}
    azure.events = [event(NotBefore="tomorrow")]
    assert asked.fetch_events()["e1"].deadline is None
    azure.events = None
    with pytest.raises(ValueError, match="list"):
        asked.fetch_events()


def test_a_notice_that_takes_the_place_of_another_is_not_withdrawn_with_it():
    first, second = (PendingEvent("revoked", "azure", when, None) for when in ("a", "b"))
    assert [each.kind for each in compare_events({"1": first}, {"2": second}, 3.0)] == ["revoked"]
    risk = PendingEvent("at risk", "aws rebalance", "a", None)
    assert list(compare_events({"r": risk, "1": first}, {"1": first}, 3.0)) == []


def test_a_notice_that_is_withdrawn_is_taken_back_and_another_time_is_news():
    first = {"e1": PendingEvent("revoked", "azure", "12:00", 30.0)}
    assert list(compare_events({}, first, 1.0)) == [Notice("revoked", 1.0, 30.0, "azure")]
    assert list(compare_events(first, {"e1": first["e1"]._replace(deadline=30.4)}, 2.0)) == []
    later = {"e1": PendingEvent("revoked", "azure", "12:10", 630.0)}
    assert list(compare_events(first, later, 3.0)) == [Notice("revoked", 3.0, 630.0, "azure")]
    assert list(compare_events(later, {}, 4.0)) == [Notice("withdrawn", 4.0, None, "azure")]


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("sys_vendor", "Amazon EC2", "aws"),
        ("product_name", "Google Compute Engine", "gcp"),
        ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", "azure"),
        ("chassis_asset_tag", "OracleCloud.com", None),
        ("sys_vendor", "QEMU", None),
    ],
)
def test_only_the_cloud_that_the_firmware_names_is_asked(tmp_path, field, value, name):
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id" / field).write_text(value)

    assert [each.name for each in find_services(tmp_path)] == ([] if name is None else [name])


class Scripted:
    """A service that says one thing after the other, then the last of them for ever."""

    name, pause_seconds = "scripted", 0.001

    def __init__(self, *says):
        self.says = list(says)

    def fetch_events(self):
        pending = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(pending, Exception):
            raise pending
        return pending


def test_a_watch_tells_each_notice_once_and_a_failed_question_takes_nothing_back():
    gone = {"a": PendingEvent("revoked", "aws", "soon", 9.0)}
    with NoticeWatch(
        [Scripted({}, gone, gone, OSError("no route"), ValueError("{"), gone, {})], clock
    ) as watch:
        notices = [watch.next_notice(5), watch.next_notice(5), watch.next_notice(0.05)]
    assert notices == [
        Notice("revoked", NOW, 9.0, "aws"),
        Notice("withdrawn", NOW, None, "aws"),
        None,
    ]


def test_a_watch_stops_while_its_service_keeps_it_waiting(service):
    asked, late = threading.Event(), threading.Event()

    def answer(*question):
        asked.set()
        late.wait()
        return 200, "TRUE", {}

    service.answer = answer
    with NoticeWatch([GcpNotices(clock)], clock) as watch:
        asked.wait()
    late.set()
    assert watch.next_notice(0.0) is None


def test_the_first_sigterm_is_a_notice_and_the_next_does_what_it_did():
    ended = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    try:
        with NoticeWatch([], clock) as watch, sigterm_as_notice(watch.receive, 60.0, clock):
            os.kill(os.getpid(), signal.SIGTERM)
            assert watch.next_notice(5) == Notice("revoked", NOW, NOW + 60, "SIGTERM")
            assert ended == []
            os.kill(os.getpid(), signal.SIGTERM)
            assert ended == [signal.SIGTERM]
        with sigterm_as_notice(lambda notice: None, 60.0):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(ended) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
