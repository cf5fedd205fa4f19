"""Listens to a whole training run, step by step, and leaves its stamps in this rank's ring: the monitor's listener.

The script runs as if Stash were not there: no scope is switched, no batch replayed, no file kept; no thread, lock,
socket or synchronisation is added. What goes wrong in here is said once, in the ring and on standard error, and from
then on nothing is stamped. Who reads the ring is not known here.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec

from stash.measure.agent import script
from stash.measure.agent.runner.optimizers import Optimizers, SeenOptimizer
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.wraps import steps
from stash.measure.protocol.orders import Orders, current
from stash.measure.protocol.stamped import LOADERS, StepRing, StepStage

P = ParamSpec("P")
_FOLLOWED = 3
"""Parameters whose gradients are the last of a backward pass, as it was seen to be."""
_LEARNS_AT = (2, 20)
"""Steps of which the order of gradients is learned: DDP makes its buckets again after the first."""
_LEARNS_EVERY = 2000
_BETWEEN = int(StepStage.BETWEEN)


def start(optimizer_module: ModuleType) -> None:
    """Begin to listen to this process's script; called with ``torch.optim.optimizer`` once it was imported."""
    orders = current()
    if orders is None:
        return
    script.subscribe(WatchedRun(orders))
    steps.wrap_optimizer(optimizer_module)


def _quietly(act: Callable[P, None]) -> Callable[P, None]:
    """A method of the listener that fails without harm to the script."""

    @functools.wraps(act)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception as error:
            args[0].give_up(error)  # type: ignore[attr-defined]

    return quiet


class WatchedLoops(script.LoopListener):
    """The waits of one process for its loaders, each by its number and name."""

    def __init__(self) -> None:
        self.stamps: Stamps | None = None
        self._numbers: dict[int, int] = {}
        self._names: list[str] = []

    def next_batch(self, feed: Any) -> Any:
        return feed.real()

    def waited(self, source: Any, take: Callable[[], Any]) -> Any:
        """``take()``, what the training thread waits for; ``source`` is what it comes from."""
        stamps = self.stamps
        if stamps is None:
            return take()
        number = self._numbers.get(id(source))
        if number is None:
            number = self._number(source)
        delay = stamps.wait_begins(time.perf_counter())
        try:
            batch = take()
        except BaseException:
            stamps.wait_ends(time.perf_counter(), delay, number, _BETWEEN)
            raise
        stamps.wait_ends(time.perf_counter(), delay, number)
        return batch

    def _number(self, source: Any) -> int:
        number = self._numbers[id(source)] = len(self._names)
        self._names.append(f"{type(source).__name__}{f' {number + 1}' if number else ''}")
        self.name_loaders()
        return number

    def name_loaders(self) -> None:
        if self.stamps is not None:
            self.stamps.ring.name_loaders(self._names[:LOADERS])


class WatchedRun(script.Listener):
    """The one listener of a training process whose run is watched."""

    def __init__(self, orders: Orders) -> None:
        self.loops: WatchedLoops = WatchedLoops()
        self.listens = True
        self._folder = Path(orders.folder)
        self._optimizers = Optimizers()
        self._counted: SeenOptimizer | None = None
        self._stamps: Stamps | None = None
        self._ranks = 1
        self._order: GradientOrder | None = None
        self.each_step: Any = None
        """Called after each step, by who listens from inside the script."""
        self._learn_at = _LEARNS_AT[0]

    def give_up(self, error: Exception) -> None:
        """Stamp nothing any more, and say why, once."""
        text = f"stash: this rank is not watched any more ({type(error).__name__}: {str(error)[:200]})"
        self.listens = False
        script.unsubscribe()
        if self._stamps is not None:
            self._stamps.ring.note(text)
            self._stamps.let_go()
        if self._order is not None:
            self._order.end()
        print(text, file=sys.stderr)

    @_quietly
    def backward_begins(self) -> None:
        if self._stamps is not None:
            self._stamps.backward_begins()

    @_quietly
    def backward_ended(self) -> None:
        if self._stamps is not None:
            self._stamps.backward_ended()

    def enter(self, stage: int) -> int:
        return stage if self._stamps is None else self._stamps.enter(stage)

    @_quietly
    def stepped(self, optimizer: Any) -> None:
        now = time.perf_counter()
        own = self._optimizers.stepped(optimizer)
        if self._stamps is None:
            self._counted = own
            self._begin(optimizer)
            return
        if own is not self._counted and not self._takes_over(own):
            return
        self._optimizers.count_step()
        self._stamps.step_ends(now)
        if self._ranks > 1:
            self._follow_gradients()
        if self.each_step is not None:
            self.each_step()

    def _takes_over(self, own: SeenOptimizer) -> bool:
        """Another optimizer than the counted one stepped: whether steps are counted at it from now on."""
        assert self._counted is not None
        successor = self._optimizers.successor(self._counted)
        if successor is None:
            return False
        self._counted = successor
        return successor is own

    def _begin(self, optimizer: Any) -> None:
        """At the first step: which rank this is, and on what it trains. What came before was setting up."""
        rank, ranks, local, node = _place()
        self._ranks = ranks
        ring = StepRing(self._folder / f"ring.{rank}.{os.getpid()}", rank, ranks, local, node)
        stamps = Stamps(time.perf_counter, ring)
        device = next((p.device.type for p in _parameters(optimizer) if p.device.type != "cpu"), "cpu")
        ring.name_device(device)
        if device == "cuda":
            stamps.follow_device()
        self._optimizers.count_step()
        self._stamps = self.loops.stamps = stamps
        self.loops.name_loaders()

    def _follow_gradients(self) -> None:
        """Learn which gradients are the last of a step, and follow those."""
        stamps = self._stamps
        assert stamps is not None
        if self._order is not None:
            last = self._order.end()
            self._order = None
            if last:
                stamps.follow(last)
            self._learn_at = next((at for at in _LEARNS_AT if at > stamps.steps), stamps.steps + _LEARNS_EVERY)
        elif stamps.steps >= self._learn_at and self._counted is not None:
            stamps.let_go()
            self._order = GradientOrder(self._trained())

    def _trained(self) -> list[Any]:
        assert self._counted is not None
        return [parameter for parameter in self._counted.parameters if parameter.requires_grad]

    @_quietly
    def exits(self, last: bool) -> None:
        if self._stamps is not None:
            self._stamps.ring.live[1] = 1.0

    @_quietly
    def abandoned(self) -> None:
        self.exits(last=True)

    def note(self, text: str) -> None:
        if self._stamps is not None:
            self._stamps.ring.note(text)


class GradientOrder:
    """Notes in which order gradients get ready in one step."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._ready: dict[int, Any] = {}
        self._handles = [each.register_post_accumulate_grad_hook(self._note) for each in parameters]

    def _note(self, parameter: Any) -> None:
        self._ready.pop(id(parameter), None)
        self._ready[id(parameter)] = parameter

    def end(self) -> list[Any]:
        """The last few."""
        for handle in self._handles:
            handle.remove()
        return list(self._ready.values())[-_FOLLOWED:]


def _parameters(optimizer: Any) -> Iterator[Any]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _place() -> tuple[int, int, int, int]:
    """(rank, ranks, local rank, node) by the process group, else by the launcher's variables."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        rank, ranks = int(dist.get_rank()), int(dist.get_world_size())
    else:
        rank, ranks = 0, 1
    local, here = _number("LOCAL_RANK", rank), _number("LOCAL_WORLD_SIZE", ranks)
    return rank, ranks, local, _number("GROUP_RANK", rank // max(1, here))


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise
