"""``stash.spot.checkpoint``: a synchronous script goes on where it was, from the checkpoint all ranks agree on.

The script names what has a state and where it is; the rest is when to save, whole or not at all, and to find the
newest again. Rank 0 saves, all ranks load: right where every rank holds the same state, as under DDP.

What one machine writes into a bucket or a network file system, another may not find for a while: SkyPilot's mounts of
S3 and GCS remember names for 5 s, blobfuse2 for 120 s. Ranks that loaded what each of them saw would train different
models, so rank 0 names the checkpoint, through the store of the process group, as that needs no device.
"""

from __future__ import annotations

import io
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from stash.core.errors import UserError
from stash.spot.sync import checkpoint_request
from stash.spot.train import saved_shards
from stash.spot.train.saved_shards import StoredState

_SEEN_SECONDS = 180.0
"""Until a file that another machine wrote has to be seen."""
_LOOK_SECONDS = 1.0
_NONE = "none"
_BROKEN = "broken"
_asked: Counter[str] = Counter()
"""How often this process asked for each folder's."""


def find_newest(
    folder: Path,
    shard: int,
    seen_seconds: float = _SEEN_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> StoredState | None:
    """The same on all ranks of the default process group; without one, what this process sees.

    Raises UserError where rank 0 finds none of several whole, or another rank does not see what rank 0 chose.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return saved_shards.newest_shard(folder, shard)
    store: Any = dist.distributed_c10d._get_default_store()  # type: ignore[no-untyped-call,unused-ignore]
    key = f"stash/checkpoint/{shard}/{folder.name}/{_asked[folder.name]}"
    _asked[folder.name] += 1
    if dist.get_rank() == 0:
        word = _BROKEN
        try:
            found = saved_shards.newest_shard(folder, shard)
            word = _NONE if found is None else found.path.name
            return found
        finally:
            store.set(key, word)
    word = store.get(key).decode()  # waits
    if word == _NONE:
        return None
    if word == _BROKEN:
        raise UserError(f"rank 0 cannot use the checkpoints in {folder}; its own error says why")
    path = folder / word
    patience = time.monotonic() + seen_seconds
    while True:
        try:
            return saved_shards.read_shard(path)
        except UserError as error:
            if time.monotonic() >= patience:
                raise UserError(
                    f"rank 0 goes on from {path.name}, which rank {dist.get_rank()} cannot use after {seen_seconds:.0f} s "
                    f"({error}); checkpoints have to be in a folder that all nodes see, like a bucket or NFS"
                ) from error
        if path.parent.is_dir():
            list(path.parent.iterdir())  # has a mount look again
        sleep(_LOOK_SECONDS)


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

    def __init__(
        self, folder: Path, every: float, parts: dict[str, HasState], clock: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._every = every
        self._parts = parts
        self._clock = clock
        self._saves = os.environ.get("RANK", "0") == "0"
        self._last = self._looked = clock()
        self._answered: str | None = None
        if self._saves:
            checkpoint_request.start_listening(self._folder)
            self._answered = checkpoint_request.latest_answer(self._folder)
        self.state: dict[str, Any] = {}
        """Where the script was when the newest checkpoint was saved; empty if it begins from nothing."""

    def step(self, **state: Any) -> bool:
        """Call it once a step: saves every so many seconds, and when a notice asks for it; whether it did.

        ``state``: where the script is (JSON).
        """
        if not self._saves:
            return False
        now = self._clock()
        if now - self._last < self._every:
            if now - self._looked < _LOOK:
                return False
            self._looked = now
            if checkpoint_request.latest_request(self._folder) in (None, self._answered):
                return False  # no new request for a checkpoint
        self.save(**state)
        return True

    def save(self, **state: Any) -> None:
        """Save now, on rank 0; raises OSError."""
        if not self._saves:
            return
        word = checkpoint_request.latest_request(self._folder)
        content = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in self._parts.items()}, content)
        saved_shards.save_shard(
            self._folder, _WHOLE, {"parts": sorted(self._parts), "state": state}, content.getvalue()
        )
        self._last = self._clock()
        self._answered = word
        checkpoint_request.record_answer(self._folder, word)

    def load(self) -> None:
        """The newest checkpoint that is whole, if there is one; raises UserError if it is of other parts."""
        found = find_newest(self._folder, _WHOLE)
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
        for sentence in found.skipped:
            print(sentence, flush=True)


def checkpoint(
    folder: str | Path | None = None,
    *,
    every: float = _EVERY,
    clock: Callable[[], float] = time.monotonic,
    **parts: HasState,
) -> ResumedTraining:
    """Load the newest checkpoint into ``parts`` and save them every ``every`` seconds from then on.

    ``kept = stash.spot.checkpoint("kept", model=model, optimizer=optimizer, every=60)``, once everything is made and
    on its device; ``kept.state.get("step", 0)`` is where to go on, ``kept.step(step=step)`` goes at the end of each
    step. ``folder`` must be one that whoever goes on can reach; without it, ``$STASH_SPOT_CHECKPOINTS`` or
    ``checkpoints``; ``stash spot guard`` sets the variable. Raises UserError for a checkpoint that cannot be used.
    """
    if not parts:
        raise UserError(
            "stash.spot.checkpoint needs what has a state, like model=model, optimizer=optimizer"
        )
    if not every > 0:
        raise UserError(f"stash.spot.checkpoint(every={every:g}): it must be more than 0 seconds")
    place = Path(folder or os.environ.get(checkpoint_request.FOLDER, "checkpoints"))
    place.mkdir(parents=True, exist_ok=True)
    made = ResumedTraining(place, every, parts, clock)
    made.load()
    return made
