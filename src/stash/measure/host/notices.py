"""What a cloud publishes about this machine: that it will be taken away, or may be; and a watch for it.

Each cloud's metadata service has an address, a pace and a form of its own; here they become pending events, and what
changed between two of them becomes notices. Asked only on machines whose firmware names the cloud, and only during
training. Knows nothing of what training does about a notice.
"""

from __future__ import annotations

import http.client
import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import quote

from stash.measure.host.cloud import (
    AWS_TOKEN,
    LINK_LOCAL,
    ServiceAnswer,
    answer_over_http,
    cloud_of,
    read_firmware,
)
from stash.measure.linux.procfs import read_text

NoticeKind = Literal["revoked", "at risk", "withdrawn"]
"""*revoked*: the machine goes. *at risk*: it may go sooner than others. *withdrawn*: what was published is off."""
NoticeSource = Literal["aws", "aws rebalance", "gcp", "azure", "SIGTERM"]


class Notice(NamedTuple):
    """A notice that this machine may be taken away, or that an earlier one is withdrawn."""

    kind: NoticeKind
    at: float
    """Seconds since 1970 by this machine's clock: when it was received."""
    deadline: float | None
    """When the machine may be gone, by this machine's clock; ``None`` if unstated."""
    source: NoticeSource


NoticeClock = Callable[[], float]
_SOON_SECONDS = 2.0
"""A service is next door."""
_ENDING = ("Preempt", "Terminate", "Redeploy", "Reboot")
"""Azure's events after which a machine's processes are gone."""


class PendingEvent(NamedTuple):
    """Something that a service says now, and goes on saying until it is off."""

    kind: NoticeKind
    source: NoticeSource
    when: str
    """In the service's own words: another time is news, the same one is not."""
    deadline: float | None


PendingEvents = Mapping[str, PendingEvent]
"""By a key of the service's own."""


def compare_events(before: PendingEvents, after: PendingEvents, at: float) -> Iterator[Notice]:
    """What is new, or has another time now, and what is withdrawn: nothing, while the machine is to go anyway."""
    for key, value in after.items():
        earlier = before.get(key)
        if earlier is None or (earlier.kind, earlier.when) != (value.kind, value.when):
            yield Notice(value.kind, at, value.deadline, value.source)
    gone = [each for key, each in before.items() if key not in after and each.kind == "revoked"]
    if gone and not any(each.kind == "revoked" for each in after.values()):
        yield Notice("withdrawn", at, None, gone[0].source)


def find_services(root: Path, clock: NoticeClock = time.time) -> list[NoticeService]:
    """What can be asked on this machine, by its firmware below ``root``: nothing where that names no cloud."""
    cloud = cloud_of(read_firmware(root), read_text(root / "sys/hypervisor/uuid"))
    return [kind(clock) for kind in (AwsNotices, GcpNotices, AzureNotices) if kind.name == cloud]


@dataclass
class NoticeService:
    """A cloud's metadata service; ``fetch_events`` waits as long as it wants, and raises OSError or ValueError."""

    name: ClassVar[str]
    pause_seconds: ClassVar[float]
    clock: NoticeClock

    def fetch_events(self) -> PendingEvents:
        """All that is pending."""
        raise NotImplementedError


@dataclass
class AwsNotices(NoticeService):
    """EC2's ``spot/instance-action``, two minutes ahead at best, and its rebalance recommendation.

    Both are "on a best effort basis", to be asked every 5 seconds (docs.aws.amazon.com, EC2 user guide, "Spot
    Instance interruption notices", "EC2 instance rebalance recommendations"). 404 means that there is nothing.
    """

    name = "aws"
    pause_seconds = 5.0
    _token: str | None = None

    def fetch_events(self) -> PendingEvents:
        found = {}
        action = self._get_answer("spot/instance-action")
        if action.status != http.client.NOT_FOUND:
            when, deadline = str(_parse_object(action).get("time", "")), None
            with suppress(ValueError):  # that it goes is known, when is not
                moment = datetime.fromisoformat(when.replace("Z", "+00:00"))
                deadline = _convert_clock(moment, action, self.clock())
            found["action"] = PendingEvent("revoked", "aws", when, deadline)
        rebalance = self._get_answer("events/recommendations/rebalance")
        # its time is when it was given, not when the machine goes
        if rebalance.status != http.client.NOT_FOUND:
            when = str(_parse_object(rebalance).get("noticeTime", ""))
            found["rebalance"] = PendingEvent("at risk", "aws rebalance", when, None)
        return found

    def _get_answer(self, path: str) -> ServiceAnswer:
        """With the token, and with a new one should it have expired."""
        url = f"{LINK_LOCAL}/latest/meta-data/{path}"
        for is_last in (False, True):
            token = {"X-aws-ec2-metadata-token": self._token or self._renew_token()}
            answer = answer_over_http(url, token, "GET", _SOON_SECONDS)
            if is_last or answer.status != http.client.UNAUTHORIZED:
                break
            self._token = None
        return _check_answer(answer, http.client.NOT_FOUND)

    def _renew_token(self) -> str:
        hours = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
        answer = _check_answer(
            answer_over_http(AWS_TOKEN.url, hours, AWS_TOKEN.method, _SOON_SECONDS)
        )
        self._token = answer.body.strip()
        return self._token


@dataclass
class GcpNotices(NoticeService):
    """Compute Engine's ``preempted``, by long poll: 30 seconds are left once it is TRUE.

    cloud.google.com, "Spot VMs" (preemption process) and "Query VM metadata" (``wait_for_change``, ``last_etag``).
    """

    name = "gcp"
    pause_seconds = 1.0
    wait_seconds: int = 60
    """Of a long poll: as long as a service that has died goes unnoticed."""
    _etag: str | None = None

    def fetch_events(self) -> PendingEvents:
        url, patience = f"{LINK_LOCAL}/computeMetadata/v1/instance/preempted", _SOON_SECONDS
        # the first question asks for what is, later ones for what changes
        if self._etag is not None:
            url += f"?wait_for_change=true&timeout_sec={self.wait_seconds}&last_etag={quote(self._etag, safe='')}"
            patience += self.wait_seconds
        header = {"Metadata-Flavor": "Google"}
        answer = _check_answer(answer_over_http(url, header, "GET", patience))
        state = answer.body.strip().upper()
        if state not in ("TRUE", "FALSE"):
            raise ValueError(f"preempted is {state[:40]!r}")
        self._etag = answer.headers.get("etag")
        if state == "FALSE":
            return {}
        return {"preempted": PendingEvent("revoked", "gcp", state, self.clock() + 30.0)}


@dataclass
class AzureNotices(NoticeService):
    """Azure's scheduled events: ``Preempt`` comes 30 seconds ahead at least, and may be withdrawn.

    learn.microsoft.com, "Azure Metadata Service: Scheduled Events for Linux VMs": the first answer can take up to two
    minutes, the service is to be asked every second, and events of other machines are listed, too.
    """

    name = "azure"
    pause_seconds = 1.0
    patience_seconds: float = 130.0
    """For the first answer; for those after it little."""
    _machine: str | None = None

    def fetch_events(self) -> PendingEvents:
        if self._machine is None:
            name = self._get_answer("instance/compute/name", "2021-02-01&format=text")
            self._machine = name.body.strip()
        answer = self._get_answer("scheduledevents", "2020-07-01", self.patience_seconds)
        self.patience_seconds = _SOON_SECONDS
        events = _parse_object(answer).get("Events")
        if not isinstance(events, list):
            raise ValueError("scheduled events without a list of them")
        found = {}
        for number, event in enumerate(events):
            if not isinstance(event, dict) or event.get("EventType") not in _ENDING:
                continue
            resources = event.get("Resources")
            if not isinstance(resources, list) or self._machine not in resources:
                continue
            when = str(event.get("NotBefore") or "")
            moment = _parse_date(when)
            deadline = None if moment is None else _convert_clock(moment, answer, self.clock())
            if event.get("EventStatus") == "Started":
                when, deadline = "Started", self.clock()
            key = str(event.get("EventId", number))
            found[key] = PendingEvent("revoked", "azure", when, deadline)
        return found

    def _get_answer(self, path: str, version: str, seconds: float | None = None) -> ServiceAnswer:
        url = f"{LINK_LOCAL}/metadata/{path}?api-version={version}"
        answer = answer_over_http(url, {"Metadata": "true"}, "GET", seconds or _SOON_SECONDS)
        return _check_answer(answer)


def _convert_clock(moment: datetime, answer: ServiceAnswer, now: float) -> float:
    """``moment`` of the service's clock on ours: the two need not agree, and its answers carry its own time."""
    theirs = _parse_date(answer.headers.get("date", ""))
    utc = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return utc.timestamp() if theirs is None else now + (utc - theirs).total_seconds()


def _parse_date(text: str) -> datetime | None:
    """As HTTP writes it."""
    try:
        found = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)


def _check_answer(answer: ServiceAnswer, *also: int) -> ServiceAnswer:
    if answer.status not in (http.client.OK, *also):
        raise OSError(f"it answered {answer.status}")
    return answer


def _parse_object(answer: ServiceAnswer) -> dict[str, Any]:
    """The JSON object of an answer; raises ValueError if it is none."""
    try:
        found = json.loads(answer.body)
    except RecursionError as error:
        raise ValueError("an answer nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("an answer that is no object")
    return found


_JOIN_SECONDS = 0.2
"""To wait for a thread in the middle of a question; it is a daemon, and its answer is dropped."""


class NoticeWatch:
    """A thread for each service within a ``with``, in which ``next_notice`` tells notices as they come.

    Best effort: a service that does not answer is asked again at the same pace, for as long as training lasts.
    """

    def __init__(self, services: Sequence[NoticeService], clock: NoticeClock = time.time) -> None:
        self._services, self._clock = services, clock
        # put in by signal handlers, too
        self._received: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> NoticeWatch:
        """Ask at once: some services need minutes for their first answer."""
        for service in self._services:
            thread = threading.Thread(
                target=self._watch_service,
                args=(service,),
                name=f"notices-{service.name}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, also while questions are under way."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def next_notice(self, seconds: float) -> Notice | None:
        """The next notice within so many seconds."""
        try:
            return self._received.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None

    def receive(self, notice: Notice) -> None:
        """Put in a notice from elsewhere; may be called from a signal handler."""
        self._received.put(notice)

    def _watch_service(self, service: NoticeService) -> None:
        known: PendingEvents = {}
        while not self._stopped.is_set():
            try:
                pending = service.fetch_events()
            except (OSError, ValueError):  # what was pending stays pending
                pass
            else:
                if not self._stopped.is_set():
                    for notice in compare_events(known, pending, self._clock()):
                        self._received.put(notice)
                known = pending
            self._stopped.wait(service.pause_seconds)


@contextmanager
def sigterm_as_notice(
    on_notice: Callable[[Notice], None], grace_seconds: float, clock: NoticeClock = time.time
) -> Iterator[None]:
    """Within the block the first SIGTERM is a notice, as Slurm and Kubernetes give it; the next does what it did.

    ``grace_seconds``: what its sender leaves until it kills (a pod's ``terminationGracePeriodSeconds``, the seconds
    of ``sbatch --signal=TERM@60``); the process cannot ask. For the main thread alone: others may set no handlers.
    """
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

    def notice(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        now = clock()
        on_notice(Notice("revoked", now, now + grace_seconds, "SIGTERM"))

    signal.signal(signal.SIGTERM, notice)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is notice:
            signal.signal(signal.SIGTERM, before)
