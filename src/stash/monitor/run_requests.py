"""What is asked of a run that is watched, from wherever its record is seen: pause, go on, trace some steps.

A request is a small file beside the record, which the watcher takes away; another user's counts for nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stash.core.errors import UserError
from stash.core.files import opened_regular, write_whole
from stash.core.formatting import join_names
from stash.core.units import format_count
from stash.monitor.records import SUFFIX

_MAX_STEPS = 1000
_MAX_RANK = 2**31
_MAX_BYTES = 65536


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it has letters that cannot be printed")
    return text


class RunRequest(BaseModel):
    """``None`` and 0: as before."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    paused: bool | None = None
    steps: Annotated[int, Field(ge=0, le=_MAX_STEPS)] = 0
    """To trace."""
    ranks: tuple[Annotated[int, Field(ge=0, le=_MAX_RANK)], ...] = ()
    """… on these; none: on all."""
    recorders: bool = False
    """Whether ranks write their flight recorders."""
    folder: Annotated[str, AfterValidator(_check_printable)] = ""
    """Where these go; the watcher's own choice if empty."""

    def describe(self, folder: str) -> tuple[str, str]:
        """What happens, and a sentence."""
        if self.paused is not None:
            return (
                ("paused", "watching is paused")
                if self.paused
                else ("resumed", "watching is resumed")
            )
        names = join_names([str(rank) for rank in self.ranks])
        whose = f"rank{'s' if len(self.ranks) > 1 else ''} {names}" if self.ranks else "all ranks"
        steps = f"{format_count(self.steps, 'step')} of {whose} traced into {Path(folder).name}"
        return "capture", f"{steps}; traced steps are not counted"


def parse_capture(text: str) -> tuple[int, tuple[int, ...]]:
    """``5`` or ``5:0,3``: steps, and on which ranks; raises ValueError."""
    steps, _, ranks = text.partition(":")
    try:
        found = int(steps), tuple(int(rank) for rank in ranks.split(",") if rank)
    except ValueError:
        raise ValueError("write a number of steps, and ranks if you like: 5, or 5:0,3") from None
    if not 1 <= found[0] <= _MAX_STEPS or any(rank < 0 for rank in found[1]):
        raise ValueError(f"write 1 to {_MAX_STEPS} steps, and ranks if you like: 5, or 5:0,3")
    return found


def traces_folder(record: Path) -> Path:
    """Beside the record: ``train.traces``."""
    return record.absolute().with_name(f"{record.name.removesuffix(SUFFIX)}.traces")


def recorders_folder(record: Path, step: int) -> Path:
    """Beside the record, of a stop after a step: ``train.recorders/step120``."""
    return (
        record.absolute().with_name(f"{record.name.removesuffix(SUFFIX)}.recorders") / f"step{step}"
    )


def _request_file(record: Path) -> Path:
    return record.with_name(f"{record.name.removesuffix(SUFFIX)}.watch.request")


def leave_request(record: Path, request: RunRequest) -> None:
    """Ask; raises UserError where the record's folder cannot be written to."""
    try:
        write_whole(_request_file(record), request.model_dump_json(), lasting=False)
    except OSError as error:
        raise UserError(
            f"--join {record}: cannot write a request beside it: {error.strerror}; try it on the machine of the run"
        ) from None


def withdraw_request(record: Path) -> bool:
    """Take back what nobody has taken; whether there was such a request."""
    try:
        _request_file(record).unlink()
    except OSError:
        return False
    return True


def is_waiting(record: Path) -> bool:
    """Whether a request is there that no watcher has taken."""
    return os.path.lexists(_request_file(record))


def take_request(record: Path) -> RunRequest | None:
    """What was asked, once; ``None`` if nothing, or by somebody else."""
    file = _request_file(record)
    try:
        with opened_regular(file) as opened:
            mine = os.fstat(opened.fileno()).st_uid in (os.getuid(), 0)
            content = opened.read(_MAX_BYTES)
    except OSError:
        return None
    with suppress(OSError):
        file.unlink()
    with suppress(ValueError):
        return RunRequest.model_validate_json(content) if mine else None
    return None
