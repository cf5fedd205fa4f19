"""torchrun's options as every command that starts ranks spells them: how many, on how many machines, which one."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Ranks (as torchrun's)"

NprocPerNode = Annotated[
    int | None,
    typer.Option(metavar="N", help="Ranks on this machine; else one per GPU, or 2 on CPUs.", rich_help_panel=PANEL),
]
Nnodes = Annotated[
    int | None,
    typer.Option(metavar="N", help="Machines; run the same command on each.", rich_help_panel=PANEL),
]
NodeRank = Annotated[
    int | None,
    typer.Option(metavar="K", help="Which machine this is, from 0.", rich_help_panel=PANEL),
]
RdzvEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Where the machines meet: an address of machine 0.", rich_help_panel=PANEL
    ),
]
