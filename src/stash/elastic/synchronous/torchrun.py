"""How torchrun is started on a node of a synchronous job, and what can be told from what it says and starts.

Words and readings only: starts nothing, and knows no PyTorch.

Agents meet at a store that none of them keeps, as on an on-demand head: whichever node is revoked, the meeting place
stays. ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE`` is what lets torch 2.13 readmit a node: without it an agent that led an
earlier round keeps that round's address, tells nobody in the next one, and a newcomer waits for it until it gives up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SETTINGS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Variables that torchrun needs on every node; a user's own value wins."""
RENDEZVOUS = "is_host=0,keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5"
"""A node that is gone is missed after 5 s, not torchrun's 15; a group that is not full waits 5 s for more, not 30."""
RUN_ID = "PET_RDZV_ID"
"""Variable that names the run where the words do not (``torch.distributed.argparse_util``)."""
_SIZE = "GROUP_WORLD_SIZE"
_ERROR = re.compile(
    r"^(?:\[rank\d+\]: )?((?!torch\.distributed\.elastic)[\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class SyncOrders:
    """What is started on every node."""

    script: tuple[str, ...]
    """The file, and its arguments."""
    nodes: tuple[str, ...]
    """At first, and at most as many."""
    least: int
    """Nodes that the script can train with."""
    restarts: int
    """That torchrun may spend on each node."""
    checkpoints: Path
    every: float
    """Seconds between checkpoints, where the script does not say."""


class ScriptMeeting(NamedTuple):
    """Where a script was started: in a group of how many nodes, of which run, behind which port."""

    size: int
    run: str
    port: str


def torchrun(orders: SyncOrders, endpoint: str, run_id: str | None, processes: int = 1) -> tuple[str, ...]:
    """The words after ``torchrun``; the run's name may be left to its variable, ``RUN_ID``."""
    named = () if run_id is None else (f"--rdzv-id={run_id}",)
    return (
        f"--nnodes={orders.least}:{len(orders.nodes)}", f"--nproc-per-node={processes}",
        f"--max-restarts={orders.restarts}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", *named,
        f"--rdzv-conf={RENDEZVOUS}", *orders.script,
    )  # fmt: skip


def meeting(variables: Mapping[str, str]) -> ScriptMeeting | None:
    """Of a process with these variables; ``None`` if it is no script that torchrun has started."""
    size = variables.get(_SIZE, "")
    if not size.isdecimal():
        return None
    return ScriptMeeting(int(size), variables.get("TORCHELASTIC_RUN_ID", ""), variables.get("MASTER_PORT", ""))


def script_failed(printed: str) -> bool:
    """Whether it was the script that failed on a node, not torchrun: at a rendezvous, say."""
    return "ChildFailedError" in printed


def complaint(printed: str) -> str:
    """The last error that a script wrote; empty if it wrote none."""
    return next(reversed(_ERROR.findall(printed)), "")
