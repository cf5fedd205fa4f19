"""Two ranks of a job that is watched, whose steps a test writes, with a clock of its own."""

import io
import os

from stash.measure.protocol import stamped
from stash.measure.protocol.stamped import StepRing, StepStage
from stash.monitor.records import Header, RecordWriter, load_record
from stash.monitor.watch_state import WatchOptions
from stash.monitor.watcher import NodeWatcher

STEP = 0.1


class Started:
    """Stands in for a process: keeps what it was given."""

    def __init__(self, words, **settings):
        self.words, self.stdin = words, io.BytesIO()
        self.stdin.close = lambda: None

    def poll(self):
        return None


class Run:
    """Two ranks of a job that is watched; ``train`` writes their steps while the clock goes on."""

    def __init__(self, folder, options=None, **more):
        self.path, self.now, self.started = folder / "run.watch.jsonl", 1e9, list[Started]()
        self.rings = [
            StepRing(folder / f"ring.{rank}.{os.getpid()}", rank, 2, rank, 0) for rank in range(2)
        ]
        price = more.pop("price", None)
        header = Header(id="x", stash_version="1", began=self.now, job="train.py", price=price)
        self.watcher = NodeWatcher(
            folder,
            RecordWriter(self.path, header),
            header,
            options or WatchOptions(),
            clock=lambda: self.now,
            start=self._start,
            **more,
        )
        self._number = 0

    def _start(self, words, **settings):
        self.started.append(Started(words))
        return self.started[-1]

    def train(self, seconds, late=lambda rank: 0.0):
        """Steps of 100 ms: 80 forward, 20 exchange; ``late``: input of a rank, which the other waits for."""
        end = self.now + seconds
        while self.now < end:
            slowest = max(late(0), late(1))
            for _ in range(5):
                self._number += 1
                self.now += STEP + slowest
                for rank, ring in enumerate(self.rings):
                    row = [0.0] * stamped.FIELDS
                    row[stamped.NUMBER], row[stamped.ENDED] = self._number, self.now
                    row[StepStage.FORWARD], row[StepStage.INPUT] = 0.08, late(rank)
                    row[StepStage.EXCHANGE] = 0.02 + slowest - late(rank)
                    ring.write(row)
            self.watcher.poll()

    def set_standing(self, seconds):
        for _ in range(int(seconds)):
            self.now += 1
            self.watcher.poll()

    def record(self):
        return load_record(self.path)
