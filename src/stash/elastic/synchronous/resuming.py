"""``stash.spot.checkpoint``: lets a synchronous script, under torchrun or alone, go on where it was when it ended.

The script names what has a state and where it is; the rest is when to save, whole or not at all, and to find the
newest again. Rank 0 saves, all ranks load: right where every rank holds the same state, as under DDP. Which one they
load rank 0 says: a network file system or a bucket may show a new file to one machine later than to another.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from stash.base.errors import UserError
from stash.elastic import checkpoints
from stash.elastic.synchronous import agreed, wanted

_EVERY = 60.0
_LOOK = 0.5
"""Seconds between looks for a request to save at once: a look opens a file, and a step may take less than that."""
_WHOLE = 0
"""Of the shard, as files are called: there is one."""


class HasState(Protocol):
    """A model, an optimizer, a scheduler, a gradient scaler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class ResumedTraining:
    """What ``stash.spot.checkpoint`` returns."""

    def __init__(self, folder: Path, every: float, parts: dict[str, HasState], clock: Callable[[], float]) -> None:
        self._folder, self._every, self._parts, self._clock = folder, every, parts, clock
        self._saves = os.environ.get("RANK", "0") == "0"
        self._last = self._looked = clock()
        self._answered: str | None = None
        self._notes = wanted.notes(folder)
        if self._saves:
            wanted.listen(self._notes)
            last = wanted.last_saved(self._notes)
            self._answered = last.word if last is not None else None
        self.state: dict[str, Any] = {}
        """What the script said where it was when the newest checkpoint was saved; empty if it begins anew."""

    def step(self, **state: Any) -> bool:
        """Call it once a step: saves every so many seconds, and when a notice asks for it; whether it did.

        ``state``: where the script is (JSON).
        """
        if not self._saves:
            return False
        now = self._clock()
        if now - self._last < self._every and not self._wanted(now):
            return False
        self.save(**state)
        return True

    def save(self, **state: Any) -> None:
        """Save now, on rank 0; raises OSError."""
        if not self._saves:
            return
        began, word = self._clock(), wanted.asked(self._notes)
        content = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in self._parts.items()}, content)
        checkpoints.save(self._folder, _WHOLE, {"parts": sorted(self._parts), "state": state}, content.getvalue())
        self._last, self._answered = self._clock(), word
        wanted.saved(self._notes, wanted.SavedNote(word, self._last - began))

    def _wanted(self, now: float) -> bool:
        """Whether somebody asks for a checkpoint that there is not yet."""
        if now - self._looked < _LOOK:
            return False
        self._looked = now
        return wanted.asked(self._notes) not in (None, self._answered)

    def load(self) -> None:
        """The newest checkpoint that is whole, if there is one; raises UserError if it is of other parts."""
        found = agreed.newest(self._folder, _WHOLE)
        if found is None:
            return
        if found.facts.get("parts") != sorted(self._parts):
            raise UserError(
                f"the checkpoint {found.path} holds {', '.join(found.facts.get('parts', ())) or 'nothing'}, and the "
                f"script asks for {', '.join(sorted(self._parts))}; name another folder, or ask for the same"
            )
        states = torch.load(io.BytesIO(found.content), map_location="cpu", weights_only=True)
        for name, part in self._parts.items():
            part.load_state_dict(states[name])
        self.state = dict(found.facts["state"])
        for told in found.skipped:
            print(told, flush=True)


def checkpoint(
    folder: str | Path | None = None,
    *,
    every: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    **parts: HasState,
) -> ResumedTraining:
    """Load the newest checkpoint into ``parts`` and save them every ``every`` seconds from then on.

    ``kept = stash.spot.checkpoint("kept", model=model, optimizer=optimizer, every=60)``, once everything is made and
    on its device; ``kept.state.get("step", 0)`` is where to go on, ``kept.step(step=step)`` goes at the end of each
    step. ``folder`` must be one that whoever goes on can reach; without it, ``$STASH_SPOT_CHECKPOINTS`` or
    ``checkpoints``. Without ``every``, ``$STASH_SPOT_CHECKPOINT_SECONDS`` or 60. ``stash spot run --sync`` sets both.
    Raises UserError for a checkpoint that cannot be used.
    """
    if not parts:
        raise UserError("stash.spot.checkpoint needs what has a state, like model=model, optimizer=optimizer")
    if every is None:
        every = float(os.environ.get(wanted.EVERY, _EVERY))
    if not every > 0:
        raise UserError(f"stash.spot.checkpoint(every={every:g}): it must be more than 0 seconds")
    place = Path(folder or os.environ.get(wanted.FOLDER, "checkpoints"))
    place.mkdir(parents=True, exist_ok=True)
    made = ResumedTraining(place, every, parts, clock)
    made.load()
    return made
