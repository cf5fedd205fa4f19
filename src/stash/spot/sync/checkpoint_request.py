"""A checkpoint that is wanted at once: who gets a notice asks for it, who saves answers, through two small files.

Both lie in the checkpoints' folder, which all nodes see. A request is a word of its own and the answer repeats it, so
that no two clocks are compared. Knows nothing of what is saved; must stay light, it runs while training does.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from stash.core.files import write_whole

FOLDER = "STASH_SPOT_CHECKPOINTS"
"""Variable that says where checkpoints are, if the script does not."""
_ASKED = "wanted"
_SAVED = "saved.json"
SHUTDOWN_SECONDS = 2.0
"""Seconds of a notice that ending the script takes: what is left of it is for the checkpoint."""


def start_listening(folder: Path) -> None:
    """Declare that this process looks for requests there from now on.

    The file is there before anybody asks, and is written to, not replaced: a network file system shows that to
    whoever opens it, but may deny for half a minute that a new file exists.
    """
    (folder / _ASKED).touch()


def latest_request(folder: Path) -> str | None:
    """The latest request; ``None`` if there was none, or none can be seen just now."""
    try:
        return (folder / _ASKED).read_bytes().decode(errors="replace") or None
    except OSError:
        return None


def record_answer(folder: Path, word: str | None) -> None:
    """A checkpoint is whole that answers this request; ``None`` if there had been none. Raises OSError."""
    write_whole(folder / _SAVED, json.dumps({"word": word}), lasting=False)


def latest_answer(folder: Path) -> str | None:
    """The request that the checkpoint answers which was saved last; ``None`` if none is known."""
    try:
        word: str | None = json.loads((folder / _SAVED).read_bytes())["word"]
        return word
    except (OSError, ValueError, KeyError, TypeError):
        return None


class CheckpointRequest:
    """One that a notice asks for."""

    def __init__(
        self, folder: Path, notice: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``notice``: seconds until the machine is gone."""
        self._folder = folder
        self._clock = clock
        self._began = clock()
        self._room = notice - SHUTDOWN_SECONDS
        self.word = secrets.token_hex(8)
        """Of this request."""
        self.seconds: float | None = None
        """From the notice until it was whole; ``None`` as long as it is not."""
        self.why = (
            ""
            if (folder / _ASKED).exists()
            else "the script saves nothing there with stash.spot.checkpoint"
        )
        """Why there is none; empty as long as there may be one."""
        if not self.why:
            try:
                (folder / _ASKED).write_text(self.word)
            except OSError as error:
                self.why = f"it cannot be asked for: {error.strerror or error}"

    def is_settled(self) -> bool:
        """Whether there is nothing to wait for: it is whole, or there will be none in time."""
        if self.seconds is None and not self.why:
            waited = self._clock() - self._began
            word = latest_answer(self._folder)
            # By a checkpoint that was begun after this request, or after a later one that took its place.
            if word is not None and word in (self.word, latest_request(self._folder)):
                self.seconds = waited
            elif waited >= self._room:
                self.why = f"none was whole within {max(self._room, 0):.3g} s"
        return self.seconds is not None or bool(self.why)
