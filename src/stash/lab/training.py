"""What the lab's two training scripts share: batches without end, and an end in one sentence.

Knows nothing of what is trained; ``zoo.train`` trains real models, ``testbed.train_emulated`` emulated ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from torch.utils.data import DataLoader, DistributedSampler

from stash.core.errors import StashError, UserError

Batch = TypeVar("Batch")


def repeat_epochs(loader: DataLoader[Batch]) -> Iterator[Batch]:
    """Batches of one epoch after the other, each reshuffled."""
    epoch = 0
    while True:
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def exit_code(run: Callable[[], None]) -> int:
    """Run a script to its end; a mistake is printed in one sentence. Returns what the process is to exit with."""
    try:
        run()
    except StashError as error:
        # An error in a loader worker arrives with the worker's traceback: the message is what follows on its type.
        message = str(error).strip().rpartition(f"\n{UserError.__module__}.UserError: ")[2]
        print(f"error: {message}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0
