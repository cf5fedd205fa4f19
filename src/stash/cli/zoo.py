"""``stash zoo``: lists the workloads that come with Stash.

Reads the registry and prints it; builds nothing and imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from stash.cli.options import flag

if TYPE_CHECKING:
    from rich.table import Table

_GROUPS = {
    "paper": "The models of the Stash paper",
    "feature study": "Its feature study: depth, residual links, batch norm",
    "more": "Other models",
}


def zoo(
    json: Annotated[bool, flag("--json", "Print the list as JSON for other programs.")] = False,
) -> None:
    """List the workloads that come with Stash.

    Each is ordinary training code: use one to measure a machine when you have no script at hand.

    \b
    stash profile --workload resnet18 --data DIR    measure one of them
    stash dataset make images DIR                   make data it can read
    """
    from rich.console import Console

    if json:
        print(_as_json())
        return
    console = Console()
    for group, title in _GROUPS.items():
        console.print(f"{title}:", style="bold")
        console.print(_table(group))
    console.print("Gradients are in float32; the batch is per device.", style="dim")


def _table(group: str) -> Table:
    """The workloads of one group; fixed widths line the groups up and fit 80 columns."""
    from rich.table import Table

    from stash.base.words.units import format_bytes
    from stash.lab.zoo.registry import WORKLOADS

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title, width in (("name", 18), ("data", 6), ("params", 7), ("gradients", 9), ("batch", 5)):
        justify: Literal["left", "right"] = "left" if title in ("name", "data") else "right"
        table.add_column(title, justify=justify, min_width=width, no_wrap=True)
    table.add_column("what it is")
    for item in WORKLOADS.values():
        if item.group == group:
            size, gradients = f"{item.parameters / 1e6:.1f} M", format_bytes(item.gradient_bytes)
            table.add_row(item.name, item.kind, size, gradients, str(item.batch), item.about)
    return table


def _as_json() -> str:
    import json

    from stash.lab.zoo.registry import WORKLOADS

    keys = ("name", "group", "kind", "parameters", "gradient_bytes", "batch", "about", "source")
    return json.dumps([{key: getattr(item, key) for key in keys} for item in WORKLOADS.values()], indent=2)
