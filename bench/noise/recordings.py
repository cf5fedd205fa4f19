"""A folder of recordings: profiles, compressed, and a manifest with a line for each.

Knows nothing of how a profile is judged.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from stash.core.artefact import decode_artefact
from stash.core.records.profile import Profile

MANIFEST = "manifest.jsonl"


@dataclass(frozen=True)
class Recording:
    """One profile that was taken: of what, beside what, where and when, and what is true."""

    name: str
    """Also its file's, without the ending."""
    job: str
    disturbance: str
    reference: bool
    """Taken to tell the truth of others, with nothing beside."""
    when: float
    """Unix time of its start."""
    machine: str
    """With the date, the cores and the versions."""
    budget: float
    truth: dict[str, float] | None
    """Seconds of each stall by hand; ``None``: the references of its job tell."""
    cause: tuple[str, ...] | None
    """Of the same."""
    slow_rank: int | None
    others: tuple[float, ...]
    """Cores that processes outside the job took, second by second."""
    seconds: float
    """From typing the command to the answer."""
    failed: str = ""
    """What was printed at the end if there is no profile."""

    @property
    def others_mean(self) -> float:
        return sum(self.others) / len(self.others) if self.others else 0.0


class Folder:
    """The recordings in ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def recordings(self) -> list[Recording]:
        """All of them, in the order of the manifest; of those taken again the last."""
        manifest = self.path / MANIFEST
        lines = manifest.read_text().splitlines() if manifest.exists() else []
        found = {one.name: one for one in map(_parse_line, lines)}
        return list(found.values())

    def add(self, recording: Recording, artefact: Path | None) -> None:
        """Keep a profile's file, if there is one, and then its line: what has a line is whole."""
        self.path.mkdir(parents=True, exist_ok=True)
        if artefact is not None:
            part = self.path / f"{recording.name}.part"
            part.write_bytes(gzip.compress(artefact.read_bytes(), mtime=0))
            part.replace(self._file(recording))
        with (self.path / MANIFEST).open("a") as file:
            file.write(json.dumps(asdict(recording)) + "\n")

    def profile(self, recording: Recording) -> Profile:
        """The profile itself; raises ArtefactError if it is damaged."""
        path = self._file(recording)
        found = decode_artefact(gzip.decompress(path.read_bytes()), path.with_suffix(""))
        assert isinstance(found, Profile)
        return found

    def references(self, job: str, disturbance: str) -> Iterator[Recording]:
        """Those that tell the truth of a job under a limit of its own, or under none."""
        for one in self.recordings():
            if (
                one.reference
                and not one.failed
                and (one.job, one.disturbance) == (job, disturbance)
            ):
                yield one

    def _file(self, recording: Recording) -> Path:
        return self.path / f"{recording.name}.stash.json.gz"


def _parse_line(line: str) -> Recording:
    fields = json.loads(line)
    fields["others"] = tuple(fields["others"])
    fields["cause"] = None if fields["cause"] is None else tuple(fields["cause"])
    return Recording(**fields)
