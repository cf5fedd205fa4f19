"""Which checkpoint all ranks go on from: the newest that rank 0 sees, however late the others come to see it.

What one machine writes into a bucket or a network file system, another may not find for a while: SkyPilot's mounts
of S3 and GCS remember names for 5 s, blobfuse2 for 120 s. Ranks that loaded what each of them saw would train
different models. Rank 0's word travels through the store of the process group, as that needs no device.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from stash.base.errors import UserError
from stash.elastic import checkpoints
from stash.elastic.checkpoints import StoredState

_SEEN_SECONDS = 180.0
"""Until a file that another machine wrote has to be seen."""
_LOOK_SECONDS = 1.0
_NONE, _BROKEN = "none", "broken"
_asked: Counter[str] = Counter()
"""How often this process asked for each folder's."""


def newest(
    folder: Path, shard: int, seen_seconds: float = _SEEN_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> StoredState | None:
    """The same on all ranks of the default process group; without one, what this process sees.

    Raises UserError where rank 0 finds none of several whole, or another rank does not see what rank 0 chose.
    """
    store = _store()
    if store is None:
        return checkpoints.newest(folder, shard)
    key = f"stash/checkpoint/{shard}/{folder.name}/{_asked[folder.name]}"
    _asked[folder.name] += 1
    if dist.get_rank() == 0:
        word = _BROKEN
        try:
            found = checkpoints.newest(folder, shard)
            word = _NONE if found is None else found.path.name
            return found
        finally:
            store.set(key, word)
    word = store.get(key).decode()  # waits
    if word == _NONE:
        return None
    if word == _BROKEN:
        raise UserError(f"rank 0 cannot use the checkpoints in {folder}; its own error says why")
    return _awaited(folder / word, seen_seconds, sleep)


def _awaited(path: Path, seconds: float, sleep: Callable[[float], None]) -> StoredState:
    patience = time.monotonic() + seconds
    while True:
        try:
            return checkpoints.read(path)
        except UserError as error:
            if time.monotonic() >= patience:
                raise UserError(
                    f"rank 0 goes on from {path.name}, which rank {dist.get_rank()} cannot use after {seconds:.0f} s "
                    f"({error}); checkpoints have to be in a folder that all nodes see, like a bucket or NFS"
                ) from error
        if path.parent.is_dir():
            list(path.parent.iterdir())  # has a mount look anew
        sleep(_LOOK_SECONDS)


def _store() -> Any:
    """Of the default process group; ``None`` where this process trains alone."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return dist.distributed_c10d._get_default_store()  # type: ignore[no-untyped-call,unused-ignore]
