"""Reading what the agents streamed: the trace of one launch, and the profile of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stash.base.records import Block, Collective, Host, Profile, Rank, Rate, Settings, Skipped, Workload, now
from stash.base.version import __version__


class Trace:
    """Everything streamed so far by one or several launches of a job, in memory."""

    def __init__(self) -> None:
        self.workload: dict[str, Any] = {}
        self.hosts: list[dict[str, Any]] = []
        self.ranks: list[dict[str, Any]] = []
        self.software: dict[str, str] = {}
        self.rungs: tuple[str, ...] = ()
        self.blocks: list[Block] = []
        self.rates: list[Rate] = []
        self.collectives: list[Collective] = []
        self.skipped: dict[str, str] = {}
        self.excused: dict[str, str] = {}
        """Rungs the launcher gave up, with reasons better than the agents'."""
        self.notes: list[str] = []
        self.rounds = 0
        self.phase: tuple[str, int | None] = ("starting", None)
        self.led = False
        """Anything was streamed: rank 0 runs on this machine."""
        self.end: str | None = None
        self.unsafe: str | None = None

    def take(self, row: dict[str, Any], offset: int = 0) -> None:
        """Add one streamed line; ``offset`` is added to its rank (launches that ran side by side)."""
        kind = row.pop("kind")
        self.led = True
        match kind:
            case "phase":
                self.phase = (str(row["name"]), row.get("round"))
            case "workload":
                self.workload |= {key: value for key, value in row.items() if value not in (None, [], {})}
            case "hosts":
                self.hosts = self.hosts or row["hosts"]
            case "ranks":
                self._take_ranks(row["ranks"], offset)
            case "software":
                self.software |= row["versions"]
            case "ladder":
                self.rungs = tuple(dict.fromkeys([*self.rungs, *row["rungs"]]))
                self.skipped |= row["skipped"]
            case "block":
                self.blocks.append(Block(**{**row, "rank": row["rank"] + offset}))
            case "rate":
                self.rates.append(Rate(**{**row, "rank": row["rank"] + offset}))
            case "collective":
                self.collectives.append(Collective(**row))
            case "skipped":
                self.skipped[row["rung"]] = row["why"]
            case "note":
                self.notes += [row["text"]] if row["text"] not in self.notes else []
            case "round":
                self.rounds += 1
            case "end":
                self.end, self.unsafe = row["reason"], row.get("why")

    def _take_ranks(self, rows: list[dict[str, Any]], offset: int) -> None:
        known = {row["rank"] for row in self.ranks}
        for row in rows:
            if row["rank"] + offset not in known:
                self.ranks.append({**row, "rank": row["rank"] + offset})

    def profile(self, settings: Settings, job: Workload, ended: str, elapsed: float) -> Profile:
        """The artefact of what was streamed."""
        steal = [block.steal for block in self.blocks if block.steal is not None]
        hosts = [Host(**host) for host in self.hosts]
        if steal and hosts:
            hosts[0] = hosts[0].model_copy(update={"steal_fraction": sum(steal) / len(steal)})
        opened = [(b.file_bytes, b.samples) for b in self.blocks if b.file_bytes and b.samples]
        disk = sum(size for size, _ in opened) / sum(count for _, count in opened) if opened else None
        facts = {**job.model_dump(), **self.workload, "sample_disk_bytes": disk}
        return Profile(
            stash_version=__version__,
            created=now(),
            workload=Workload.model_validate(facts),
            hosts=tuple(hosts),
            ranks=tuple(Rank(**row) for row in sorted(self.ranks, key=lambda row: int(row["rank"]))),
            software=self.software,
            settings=settings,
            blocks=tuple(self.blocks),
            rates=tuple(self.rates),
            collectives=tuple(self.collectives),
            skipped=tuple(Skipped(rung=rung, why=why) for rung, why in {**self.skipped, **self.excused}.items()),
            notes=tuple(self.notes),
            ended=ended,
            elapsed_seconds=elapsed,
        )


class Tail:
    """Follows a growing file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def rows(self) -> list[dict[str, Any]]:
        """The lines completed since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
