"""How the ranks of a job agree on the next block: one exchange over a gloo group of Stash's own.

The group never carries training traffic and waits for days, so ranks that sit a block out may wait on it: that a
node is gone is for the launchers to notice. Rank 0 leads: it hears every rank's report, decides, and tells all.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from stash.measure.agent import private
from stash.measure.agent.wraps.scope import scope
from stash.measure.linux.interfaces import interface_towards
from stash.measure.run.folder import RunFolder
from stash.measure.run.journal import JournalCopy
from stash.measure.run.meeting import Invitation, Meeting
from stash.measure.run.messages import Message, Told

T = TypeVar("T")
_PATIENCE = timedelta(days=2)
_MEETING = timedelta(minutes=5)
_INTERFACE = "GLOO_SOCKET_IFNAME"


@dataclass(frozen=True)
class Place:
    """Where this rank stands in the job."""

    rank: int = 0
    world_size: int = 1
    node: int = 0
    local_rank: int = 0
    node_ranks: tuple[int, ...] = (0,)
    nodes: int = 1

    @property
    def ranks_per_node(self) -> int:
        return len(self.node_ranks)


class Control:
    """Exchanges between the ranks; a job of one process needs none and talks to itself."""

    def __init__(self, folder: RunFolder) -> None:
        self.place = Place()
        self._folder = folder
        self._group: Any = None
        self._copy: JournalCopy | None = None

    def join(self) -> None:
        """Form the control group; collective, right after ``init_process_group``."""
        import torch.distributed as dist

        with scope.untouched():
            self._group = _gloo_group()
            gathered: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(gathered, (node_name(), Invitation.read(self._folder)), group=self._group)
            names = [name for name, _ in gathered]
            members: dict[str, list[int]] = {}
            for rank, name in enumerate(names):
                members.setdefault(name, []).append(rank)
        rank, own = dist.get_rank(), names[dist.get_rank()]
        self.place = Place(
            rank=rank,
            world_size=dist.get_world_size(),
            node=list(members).index(own),
            local_rank=members[own].index(rank),
            node_ranks=tuple(members[own]),
            nodes=len(members),
        )
        scope.node_ranks = self.place.node_ranks
        self._introduce(gathered[0][1])

    def _introduce(self, leaders: Invitation | None) -> None:
        """Tell this node's launcher where all of them meet, and begin to keep a copy of the leader's journal."""
        host = os.environ.get("MASTER_ADDR")
        if leaders is None or not host or self.place.nodes == 1 or self._copy is not None:
            return
        first = Meeting(host, leaders.port, leaders.token, self.place.node).write(self._folder)
        self._copy = JournalCopy(self._folder, writes=first and self.place.node > 0)

    @property
    def leads(self) -> bool:
        return self.place.rank == 0

    def exchange(self, report: Any, decide: Callable[[list[Any]], T]) -> T:
        """Hand in this rank's report; the leader turns all of them into a decision every rank gets."""
        if self._group is None:
            return decide([report])
        import torch.distributed as dist

        with scope.untouched():
            reports = self._gather(pickle.dumps(Told(report) if isinstance(report, Message) else report))
            decision: list[Any] = [decide(reports), self._news()] if reports is not None else [None, None]
            dist.broadcast_object_list(decision, src=0, group=self._group)
        if self._copy is not None:
            self._copy.take(decision[1])
        return decision[0]  # type: ignore[no-any-return]

    def _gather(self, report: bytes) -> list[Any] | None:
        """Every rank's report, on the leader.

        Here all are as long as the longest, which pickle does not mind: ``gather_object`` handles a tensor for each
        rank's size, and costs a leader of a thousand ranks 20 ms.
        """
        import torch
        import torch.distributed as dist

        longest = torch.tensor([len(report)])
        dist.all_reduce(longest, dist.ReduceOp.MAX, group=self._group)
        own = torch.frombuffer(bytearray(report.ljust(int(longest), b"\0")), dtype=torch.uint8)
        if not self.leads:
            dist.gather(own, dst=0, group=self._group)
            return None
        everybodys = torch.empty(self.place.world_size, len(own), dtype=torch.uint8)
        dist.gather(own, list(everybodys.unbind()), dst=0, group=self._group)
        return opened(everybodys)

    def _news(self) -> bytes:
        return self._copy.news() if self._copy is not None else b""


def opened(reports: Any) -> list[Any]:
    """Reports out of a tensor of bytes, a row for each rank."""
    return [pickle.loads(row) for row in reports.numpy()]


def _gloo_group() -> Any:
    """A gloo group of all ranks, also in jobs that use NCCL and never had to set gloo up.

    Gloo takes the address the host's name resolves to, often 127.0.1.1; where nobody chose an interface, the
    one that reaches MASTER_ADDR is right. Forming the group must not take long; waiting in it may.
    """
    import torch.distributed as dist

    chosen = None if os.environ.get(_INTERFACE) else interface_towards(os.environ.get("MASTER_ADDR", ""))
    if chosen is not None:
        os.environ[_INTERFACE] = chosen
    try:
        group = dist.new_group(backend="gloo", timeout=_MEETING)
    except RuntimeError as error:
        raise RuntimeError(
            "the ranks cannot reach each other over gloo, which Stash agrees on blocks with; "
            f"set {_INTERFACE} to the interface that connects the nodes"
        ) from error
    finally:
        if chosen is not None:
            del os.environ[_INTERFACE]
    private.set_timeout(group, _PATIENCE)
    return group


def node_name() -> str:
    """What tells one machine from another: the launcher's own numbering, else host, boot and network namespace."""
    for variable in ("STASH_NODE", "GROUP_RANK", "SLURM_NODEID"):
        if os.environ.get(variable):
            return f"{variable}={os.environ[variable]}"
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        boot, network = "", 0
    return f"{socket.gethostname()} {boot} {network}"
