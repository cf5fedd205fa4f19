"""How the ranks of a job agree on what is next, over a gloo group of Stash's own; and how a rank leaves its job.

What crosses is data, never pickles (``protocol/wire``): gloo believes whoever says to be a rank. The group never
carries training traffic and waits for days, so ranks that sit a block out may wait on it: that a node is gone is for
the launchers to notice. Rank 0 leads: it gets every rank's report, decides, and sends all of them its decision.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

from stash.measure.agent import private, script
from stash.measure.agent.wraps.scope import scope
from stash.measure.linux.interfaces import CHOSEN, interface_towards, own_address
from stash.measure.linux.processes import node_name
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import JournalCopy
from stash.measure.protocol.messages import Message, Payload
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.wire import MAX_BYTES, WireError, pack_value, unpack_value

T = TypeVar("T")
_PATIENCE = timedelta(days=2)
_MEETING = timedelta(minutes=5)
_MAX_ANSWER_SECONDS = 10.0
"""Seconds for the launcher to answer; it looks ten times a second."""
_SHUTDOWN_SECONDS = 60.0
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Place:
    """Where this rank stands in the job."""

    rank: int = 0
    world_size: int = 1
    node: int = 0
    local_rank: int = 0
    node_ranks: tuple[int, ...] = (0,)
    nodes: int = 1


class Control:
    """Exchanges between the ranks; a job of one process needs none and decides alone.

    ``supervised``: the launcher listens for those of other nodes as soon as this rank says that there are any.
    """

    def __init__(self, folder: RunFolder, supervised: bool = False) -> None:
        self.place = Place()
        self._folder, self._supervised = folder, supervised
        self._group: Any = None
        self._copy: JournalCopy | None = None
        self.stands_apart = False
        """This rank takes steps of its own, which others have no part in."""

    def join(self) -> None:
        """Form the control group; collective, right after ``init_process_group``."""
        import torch.distributed as dist

        with scope.bypass():
            self._group = _gloo_group()
            self.place = Place(rank=dist.get_rank(), world_size=dist.get_world_size())
            names = self._agree(node_name(), lambda names: names)
        members: dict[str, list[int]] = {}
        for rank, name in enumerate(names):
            members.setdefault(name, []).append(rank)
        own = members[names[self.place.rank]]
        self.place = replace(
            self.place,
            node=list(members.values()).index(own),
            local_rank=own.index(self.place.rank),
            node_ranks=tuple(own),
            nodes=len(members),
        )
        scope.node_ranks = self.place.node_ranks
        if self._supervised and self.place.nodes > 1 and self._copy is None:
            self._introduce()

    def _introduce(self) -> None:
        """Bring the launchers of all nodes together, and begin to keep a copy of the leader's journal."""
        Neighbours(self.place.node, own_address()).write(self._folder)
        with scope.bypass():
            invitation = self._agree(None, lambda reports: _wait_for_invitation(self._folder))
        if invitation is not None:
            first = invitation.write_meeting(self._folder)
            self._copy = JournalCopy(self._folder, writes=first and self.place.node > 0)

    @property
    def leads(self) -> bool:
        return self.place.rank == 0

    def await_others(self, seconds: float) -> None:
        """Wait so long for all ranks to come here; from then on this one ``stands_apart`` if not all of them did.

        Ranks may have different parts in a job, as servers and workers, actors and learners: some never step, or step
        in the midst of what others wait for. Whoever comes later stands apart, too.
        """
        store, place, key = private.default_store(), self.place, f"stash/{self._folder.path.name}"
        store.set(f"{key}/{place.rank}", "here")
        everyone = [f"{key}/{rank}" for rank in range(place.world_size)]
        deadline = time.monotonic() + seconds
        while not (are_here := store.check(everyone)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        met = store.compare_set(f"{key}/met", "", "together" if are_here else "apart")
        if met != b"together":
            self._group, self.place, self.stands_apart = None, Place(), True

    def exchange(self, report: Any, decide: Callable[[list[Any]], T]) -> T:
        """Hand in this rank's report; the leader turns all of them into a decision every rank gets.

        Raises RuntimeError if another rank is gone, or says what no rank says.
        """
        if self._group is None:
            return decide([report])
        sent = Payload.pack(report) if isinstance(report, Message) else report
        with scope.bypass():
            copy = self._copy
            decision, news = self._agree(
                sent,
                lambda reports: (
                    decide(reports),
                    "" if copy is None else copy.read_news().decode(),
                ),
            )
        if copy is not None:
            copy.append_news(news.encode())
        return decision  # type: ignore[no-any-return]

    def _agree(self, report: Any, decide: Callable[[list[Any]], Any]) -> Any:
        """What the leader makes of all reports, on every rank."""
        import torch
        import torch.distributed as dist

        reports = self._gather_reports(pack_value(report))
        decision = None if reports is None else decide(reports)
        data = b"" if reports is None else pack_value(decision)
        size = torch.tensor([len(data)])
        dist.broadcast(size, src=0, group=self._group)
        sent = (
            torch.zeros(_check_size(int(size)), dtype=torch.uint8)
            if reports is None
            else _make_tensor(data)
        )
        dist.broadcast(sent, src=0, group=self._group)
        return unpack_value(sent.numpy().tobytes()) if reports is None else decision

    def _gather_reports(self, report: bytes) -> list[Any] | None:
        """Every rank's report, on the leader.

        Here all are as long as the longest: ``gather_object`` handles a tensor for each rank's size, and costs a
        leader of a thousand ranks 20 ms.
        """
        import torch
        import torch.distributed as dist

        longest = torch.tensor([len(report)])
        dist.all_reduce(longest, dist.ReduceOp.MAX, group=self._group)
        own = _make_tensor(report.ljust(_check_size(int(longest))))
        if not self.leads:
            dist.gather(own, dst=0, group=self._group)
            return None
        rows = torch.empty(self.place.world_size, len(own), dtype=torch.uint8)
        dist.gather(own, list(rows.unbind()), dst=0, group=self._group)
        return read_reports(rows)


def read_reports(reports: Any) -> list[Any]:
    """Reports out of a tensor of bytes, a row for each rank; blanks behind them do not matter.

    What many ranks send alike is read once: most have nothing to report but that they are there.
    """
    rows = [row.tobytes() for row in reports.numpy()]
    distinct = {row: unpack_value(row) for row in set(rows)}
    return [distinct[row] for row in rows]


def _make_tensor(data: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _check_size(size: int) -> int:
    """Before so much memory is asked for; raises WireError."""
    if not 0 <= size <= MAX_BYTES:
        raise WireError(f"a rank claimed {size} bytes, more than any rank has to say")
    return size


def _wait_for_invitation(folder: RunFolder) -> Invitation | None:
    """The launcher's answer to ``Neighbours``; None if it gives none."""
    deadline = time.monotonic() + _MAX_ANSWER_SECONDS
    while (invitation := Invitation.load(folder)) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return invitation


def _gloo_group() -> Any:
    """Form a gloo group of all ranks, also in jobs that use NCCL and never had to set gloo up.

    Gloo takes the address the host's name resolves to, often 127.0.1.1; where none was chosen, the
    one that reaches MASTER_ADDR is right. Forming the group must not take long; waiting in it may.
    """
    import torch.distributed as dist

    chosen = (
        None if os.environ.get(CHOSEN) else interface_towards(os.environ.get("MASTER_ADDR", ""))
    )
    if chosen is not None:
        os.environ[CHOSEN] = chosen
    try:
        group = dist.new_group(backend="gloo", timeout=_MEETING)
    except RuntimeError as error:
        raise RuntimeError(
            "the ranks cannot reach each other over gloo, which Stash agrees on blocks with; "
            f"set {CHOSEN} to the interface that connects the nodes"
        ) from error
    finally:
        if chosen is not None:
            del os.environ[CHOSEN]
    private.set_timeout(group, _PATIENCE)
    return group


class Shutdown:
    """Ends one rank of the launch in ``folder``: it waits to be ended, so that nothing after it begins unnoticed.

    What a shell script or another launcher does once training has ended is not known here; the launcher ends all of
    it together with the ranks. Waiting has an end of its own, for ranks that no launcher can reach.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def leave_here(self) -> None:
        """Leave in the middle of the script, before it could evaluate or save what was trained; never returns."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._folder.mark("finished")
        time.sleep(_SHUTDOWN_SECONDS)
        script.hard_exit(1)  # a command that is to follow only a success does not

    def leave_at_exit(self) -> None:
        """Leave where the script has ended by itself; returns once nothing else of the job can act on that."""
        self._folder.mark("exiting")
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        while not self._folder.released.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
