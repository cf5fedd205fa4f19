"""``stash spot guard FOLDER -- torchrun …``: on a rented node, makes of a notice a checkpoint and an orderly end.

Parses; ``rent/spot/guard.py`` listens and asks.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.cli.options import option, seconds_of

if TYPE_CHECKING:
    from stash.measure.host.notice_watch import NoticeWatch

_GRACE = "30s"
_GRACE_HELP = f"What a SIGTERM leaves until the kill; else {_GRACE}."
_HEAD_HELP = "Where a rented gang meets; needs --name and $STASH_RUN_TOKEN."
_FOLDER_HELP = "Of the script's checkpoints; all nodes must see it."


def guard(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=_FOLDER_HELP, show_default=False)],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="torchrun with all it takes.", show_default=False)
    ],
    grace: Annotated[str | None, option("TIME", _GRACE_HELP)] = None,
    head: Annotated[str | None, option("HOST:PORT", _HEAD_HELP)] = None,
    name: Annotated[str | None, option("NAME", "What this node is called there.")] = None,
) -> None:
    """Run a node's torchrun, and save a checkpoint when the node is told that it will be taken away.

    Hears the metadata service of AWS, GCP and Azure, and SIGTERM. Ends with the command's exit code.

    stash spot guard /shared/kept -- torchrun --nnodes=2:4 --rdzv-backend=c10d train.py
    """
    from stash.base.platforms import require_linux
    from stash.measure.host.notice_watch import NoticeWatch
    from stash.measure.host.notices import services
    from stash.rent.spot.guard import NodeGuard

    require_linux("stash spot guard")
    seconds, place = seconds_of("--grace", grace or _GRACE), folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    watch = NoticeWatch(services(Path("/")))
    if head is not None or name is not None:
        raise typer.Exit(_of_gang(command, place, seconds, head, name, watch))
    raise typer.Exit(NodeGuard(command, place, seconds, _say).run(watch))


def _of_gang(
    command: list[str], place: Path, grace: float, head: str | None, name: str | None, watch: NoticeWatch
) -> int:
    from stash.base.membership import TOKEN
    from stash.elastic.synchronous.board import board_at
    from stash.rent.spot.node import RentedNode

    token = os.environ.get(TOKEN)
    if head is None or name is None or not token:
        raise UserError(f"--head, --name and ${TOKEN} belong together; give all of them, or none")
    address, _, port = head.rpartition(":")
    if not address or not port.isdecimal():
        raise UserError(f"--head {head!r}: write it like 10.0.0.5:29400")
    with tempfile.TemporaryDirectory(prefix="stash-node-") as notes:
        node = RentedNode(command, name, place, Path(notes), grace, token, _say)
        return node.run(watch, lambda: board_at(address, int(port), token))


def _say(text: str) -> None:
    print(printable_line(f"stash: {text}"), file=sys.stderr, flush=True)
