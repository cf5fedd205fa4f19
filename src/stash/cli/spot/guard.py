"""``stash spot guard FOLDER -- torchrun …``: on a rented node, makes of a notice a checkpoint and an orderly end.

Parses; ``rent/spot/guard.py`` listens and asks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stash.base.printable import printable_line
from stash.cli.options import option
from stash.cli.spot.words import seconds_of

_GRACE = "30s"
_GRACE_HELP = f"What a SIGTERM leaves until the kill; else {_GRACE}."
_FOLDER_HELP = "Of the script's checkpoints; all nodes must see it."


def guard(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help=_FOLDER_HELP, show_default=False)],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="torchrun with all it takes.", show_default=False)
    ],
    grace: Annotated[str | None, option("TIME", _GRACE_HELP)] = None,
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
    code = NodeGuard(command, place, seconds, _say).run(NoticeWatch(services(Path("/"))))
    raise typer.Exit(code)


def _say(text: str) -> None:
    print(printable_line(f"stash: {text}"), file=sys.stderr, flush=True)
