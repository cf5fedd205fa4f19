"""Watches for notices beside training: a thread for each service, and SIGTERM, into one line of notices.

Best effort: a service that does not answer is asked again at the same pace, for as long as training lasts, and is
named in ``silent``. Knows nothing of what a service says (``notices``) or of what training does about it.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType

from stash.base.spot.notice import Notice
from stash.measure.host.notices import Announcements, NoticeClock, NoticeService, news

_FAREWELL_SECONDS = 0.2
"""To wait for a thread in the middle of a question; it is a daemon, and its answer goes unheard."""


class NoticeWatch:
    """Use it in ``with``, and iterate: notices come as they are heard, until ``stop``."""

    def __init__(self, services: Sequence[NoticeService], clock: NoticeClock = time.time) -> None:
        self._services, self._clock = services, clock
        self._heard: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()  # put in by signal handlers, too
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._trouble: dict[str, str] = {}

    def start(self) -> None:
        """Ask at once: some services need minutes for their first answer."""
        for service in self._services:
            thread = threading.Thread(
                target=self._watch, args=(service,), name=f"notices-{service.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End it, also while questions are under way."""
        self._stopped.set()
        self._heard.put(None)
        for thread in self._threads:
            thread.join(_FAREWELL_SECONDS)

    def __enter__(self) -> NoticeWatch:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __iter__(self) -> Iterator[Notice]:
        while (notice := self._heard.get()) is not None:
            yield notice

    def next(self, seconds: float) -> Notice | None:
        """The next notice within so many seconds."""
        try:
            return self._heard.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None

    def hear(self, notice: Notice) -> None:
        """Put in what was heard otherwise; may be called from a signal handler."""
        self._heard.put(notice)

    @property
    def silent(self) -> dict[str, str]:
        """Services whose last question has no answer, and why."""
        return dict(self._trouble)

    def _watch(self, service: NoticeService) -> None:
        known: Announcements = {}
        while not self._stopped.is_set():
            try:
                now_announced = service.ask()
            except (OSError, ValueError) as error:  # what was announced stays announced: nobody took it back
                self._trouble[service.name] = str(error) or type(error).__name__
            else:
                self._trouble.pop(service.name, None)
                if not self._stopped.is_set():
                    for notice in news(known, now_announced, self._clock()):
                        self._heard.put(notice)
                known = now_announced
            self._stopped.wait(service.pause_seconds)


@contextmanager
def hearing_sigterm(
    hear: Callable[[Notice], None], grace_seconds: float | None = None, clock: NoticeClock = time.time
) -> Iterator[None]:
    """Within the block the first SIGTERM is a notice, as Slurm and Kubernetes give it; the next does what it did.

    ``grace_seconds``: what its sender leaves until it kills (a pod's ``terminationGracePeriodSeconds``, the seconds
    of ``sbatch --signal=TERM@60``); nobody tells the process. For the main thread alone: others may set no handlers.
    """
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

    def notice(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, before)
        now = clock()
        hear(Notice("revoked", now, None if grace_seconds is None else now + grace_seconds, "SIGTERM"))

    signal.signal(signal.SIGTERM, notice)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is notice:
            signal.signal(signal.SIGTERM, before)
