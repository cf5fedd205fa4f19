"""How far collectives of this process reach: the scope in force, and calls through ``torch.distributed`` under it.

Under scope *world* a call is passed on untouched, and counted. Under *node* it runs over what of its group lies on
the node; under *self* it does what a group of one would do (both ``wraps/groups``). What one rank hands out to the
others (batches, flags, seeds) is always passed on: without it there is no step. Functional collectives, those of
DTensor and of graphs that torch.compile made, never pass ``torch.distributed``'s functions: a kernel in front of the
dispatcher's own sees them, and they are counted and timed like others, but under which scope they run cannot be
chosen. Collectives that C++ code issues by itself never come here: ``private.sequence_numbers`` shows that they
happened.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from stash.core.ladder import ScopeName
from stash.measure.agent import private, script
from stash.measure.agent.script import Function
from stash.measure.agent.wraps.groups import (
    ALWAYS_WORK,
    LOCAL,
    NodePart,
    answer_alone,
    default_group,
    ranks_of,
    within_node,
)
from stash.measure.agent.wraps.waits import (
    kind_of,
    ledger,
    remember_works,
    stamp_call,
    wait_in_flight,
    wrap_work,
)

NODE_CAPABLE = frozenset(
    {
        "all_reduce",
        "broadcast",
        "reduce",
        "barrier",
        "monitored_barrier",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_single",
        "all_gather_object",
        "broadcast_object_list",
        "reduce_scatter_tensor",
    }
)
"""Collectives that can be confined to a node."""
HANDS_OUT = frozenset({"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"})
"""Collectives that give ranks what one of them has, and nothing else does."""
_MAX_STORAGES = 1 << 14
"""Of tensors handed out by a collective, which are remembered."""
_SEVERAL_JOBS = (
    "the process group {name} ({size} ranks) was not formed among this job's ranks: what it waits there for another "
    "job is exchange, and rungs without exchange leave it out, so that the other job waits meanwhile"
)
POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
"""What ranks hand to single others, as the stages of a pipeline do."""


class Scope:
    """How far collectives reach: ``name`` is the scope in force."""

    def __init__(self) -> None:
        self.name: ScopeName = "world"
        self.node_ranks: tuple[int, ...] = ()
        """The global ranks of this rank's node."""
        self.parts: dict[str, NodePart] = {}
        """Of groups that reach beyond this node, by their names: what of them lies on it."""
        self.used: dict[str, Any] = {}
        """Process groups the script's collectives ran over, by name."""
        self.handed_out: defaultdict[str, set[int | None]] = defaultdict(set)
        """Storages of what it handed out to all others, by collective; ``None`` of objects."""
        self.weights: frozenset[int] = frozenset()
        """Storages of parameters: handing those out is part of exchanging gradients."""
        self.always_real: frozenset[str] = frozenset()
        """Collectives that hand out something else, which are passed on under every scope."""
        self.passed_on: Counter[str] = Counter()
        """How many collectives those were below scope world, by group."""
        self.issued: Counter[str] = Counter()
        """Collectives the script called under scope world since counting began, by name."""
        self.sent: Counter[str] = Counter()
        """Bytes that this rank handed to them."""
        self.steps = 0
        """Steps under scope world since then."""
        self._far: dict[str, bool] = {}
        """Of those groups, whether they are known to have ranks on other nodes."""
        self._called: set[tuple[str, bool]] = set()
        """Names of collectives, and whether they ran over such groups."""
        self.of_several_jobs: set[str] = set()
        """Names of groups whose ranks are not only this job's: their numbers tell nothing of where they are."""
        self.standing_in = 0.0
        """Seconds of the main thread so far in what stands in for collectives, which copies what they would."""
        self.untouched = 0
        """Calls are to be passed on as they are while it is not."""

    def bypass(self) -> Scope:
        """Collectives called ``with`` it are real and not counted: Stash's own, and those that a collective calls."""
        return self

    def __enter__(self) -> None:
        self.untouched += 1

    def __exit__(self, *error: object) -> None:
        self.untouched -= 1

    def count_call(self, name: str, group: Any, size: int) -> None:
        """The script called a collective over ``group`` and handed it ``size`` bytes."""
        key = group.group_name
        if key not in self.used:
            self.used[key] = group
            if key not in self.of_several_jobs and private.spans_several_jobs(group):
                self.of_several_jobs.add(key)
                script.note(_SEVERAL_JOBS.format(name=key, size=group.size()))
            self._far[key] = key not in self.of_several_jobs and self.reaches(group)
        self.issued[name] += 1
        if group.size() > 1:
            self.sent[name] += size
        self._called.add((name, self._far[key]))

    @property
    def handed_on(self) -> set[str]:
        """Collectives by which the script handed data to single ranks, by name."""
        return {name for name, _ in self._called} & POINT_TO_POINT

    def hands_out_data(self) -> list[str]:
        """Names of collectives by which the script hands out something else than parameters.

        Tensors at least in every second of the steps so far: what is synchronised at an epoch's start, as states of
        random generators are, each rank has one of.
        """
        return sorted(
            name
            for name, storages in self.handed_out.items()
            if not storages <= self.weights
            and (None in storages or 2 * self.issued[name] >= self.steps)
        )

    def collectives_begun(
        self, among: Callable[[Any], bool] = lambda group: True
    ) -> dict[str, int]:
        """How many collectives each group began, less those that were passed on below scope world."""
        return {
            name: count - self.passed_on[name]
            for name, count in private.sequence_numbers(among).items()
        }

    def count_step(self) -> None:
        """A step of the job ended."""
        self.steps += self.name == "world"

    def per_step(self, counted: Mapping[str, int]) -> dict[str, float]:
        """What was ``counted`` of collectives, by name; empty before the first counted step."""
        steps = self.steps
        return {name: round(n / steps, 3) for name, n in counted.items()} if steps else {}

    def reset_counts(self) -> None:
        """Begin to count again; which groups and collectives were seen is not forgotten."""
        self.issued.clear()
        self.sent.clear()
        self.steps = 0

    def forget(self) -> None:
        """Begin to look again: what was seen so far was no training step."""
        self.reset_counts()
        self.used.clear()
        self.handed_out.clear()
        self._called.clear()

    def list_beyond_node(self) -> list[str]:
        """Names of collectives the script issued to other nodes that cannot be confined to one."""
        return sorted({name for name, is_far in self._called if is_far} - NODE_CAPABLE)

    def reaches(self, group: Any) -> bool:
        """Whether a group has ranks on other nodes, or may have."""
        is_far = not set(ranks_of(group)) <= set(self.node_ranks)
        return is_far or group.group_name in self.of_several_jobs


scope = Scope()
"""Of this process."""


def wrap_collectives(c10d: ModuleType) -> None:
    """Wrap the collectives of ``torch.distributed.distributed_c10d`` before anyone copies their names."""
    for name in LOCAL:
        if hasattr(c10d, name):
            script.wrap(c10d, name, _wrap_collective, name)
    wrap_work(c10d)
    script.surround(c10d, "destroy_process_group", _end_with_group)
    script.after(c10d, "init_process_group", lambda *_, **__: script.listener().world_formed())


def _end_with_group(destroy: Function, group: Any = None) -> None:
    """The script destroys its process group because it is done, or on its way out under an exception."""
    if group is None or group is default_group():
        error = sys.exc_info()[1]
        if error is None:
            script.listener().loop_ended()
        elif isinstance(error, SystemExit):
            script.exits(last=False)
        else:
            script.listener().abandoned()
    destroy(group)


def _wrap_collective(original: Function, name: str) -> Function:
    signature, kind = inspect.signature(original), kind_of(name)
    places = {each: place for place, each in enumerate(signature.parameters)}

    def find_argument(each: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One argument, sought by itself: binding all of them would take a third of what seeing a call costs."""
        place = places.get(each, len(args))
        return args[place] if place < len(args) else kwargs.get(each)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if scope.untouched:
            return original(*args, **kwargs)
        script.listener().loops.acted()
        return script.run_collective(within_scope, args, kwargs)

    def within_scope(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operations = find_argument("p2p_op_list", args, kwargs)
        group = operations[0].group if operations else find_argument("group", args, kwargs)
        group = default_group() if group is None else group
        if not hasattr(group, "rank"):
            return original(*args, **kwargs)  # not a member: PyTorch's own warning
        run = functools.partial(original, *args, **kwargs)
        storage = storage_of(find_argument("tensor", args, kwargs)) if name in HANDS_OUT else None
        if scope.name != "world":
            if name in scope.always_real and storage not in scope.weights:
                return _call_for_real(run, group)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return _run_confined(name, original, bound.arguments, group)
        key = (group.group_name, kind)
        size = 0 if "object" in name else payload_bytes((*args, *kwargs.values()))
        scope.count_call(name, group, size)
        if name in HANDS_OUT and group.size() > 1 and len(scope.handed_out[name]) < _MAX_STORAGES:
            scope.handed_out[name].add(storage)
        for each in operations or ():
            ledger.note_call((key[0], kind_of(each.op.__name__)), payload_bytes([each]))
        if name == "all_to_all_single":
            given = find_argument("input_split_sizes", args, kwargs)
            taken = find_argument("output_split_sizes", args, kwargs)
            if given and taken:
                ledger.note_dispatch(group.group_name, list(given), list(taken))
        with scope.bypass():  # object collectives call tensor ones: only the outer call counts
            result = ledger.outer(key, -1 if operations else size, run)
        if name in ALWAYS_WORK or operations or find_argument("async_op", args, kwargs):
            remember_works(result, key, operations)
        return result

    return call


def storage_of(value: Any) -> int | None:
    """Where a tensor's numbers are; ``None`` of what is no tensor, or keeps them in several places."""
    try:
        return int(value.untyped_storage().data_ptr())
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _call_for_real(call: Callable[[], Any], group: Any) -> Any:
    """Run a collective that is real under every scope, and count how many its group begins for it."""

    count = functools.partial(private.sequence_numbers, lambda each: each is group)
    before = count()
    with scope.bypass():
        result = call()
    scope.passed_on.update(count())
    scope.passed_on.subtract(before)
    return result


def _run_confined(name: str, original: Function, arguments: dict[str, Any], group: Any) -> Any:
    """What the caller gets under a scope below world."""
    if scope.name == "node":
        key, ranks = group.group_name, ranks_of(group)
        part = scope.parts.get(key)
        with scope.bypass():
            if not scope.reaches(group):
                return original(**arguments)
            if part is not None and name in NODE_CAPABLE:
                return within_node(name, original, arguments, part, ranks)
        shared = set() if key in scope.of_several_jobs else set(ranks) & set(scope.node_ranks)
        if part is None and len(shared) > 1:
            script.note(
                "a process group that no step of the warm-up used is not exchanged over under the rung node"
            )
    began = time.perf_counter()
    answer = answer_alone(name, arguments, max(group.rank(), 0), group.size())
    if threading.current_thread() is threading.main_thread():
        scope.standing_in += time.perf_counter() - began
    return answer


def payload_bytes(arguments: Iterable[Any]) -> int:
    """Bytes of the largest argument: what is reduced, all that is gathered, all that is scattered.

    That is the size by which nccl-tests calls a collective.
    """
    return max(map(_value_bytes, arguments), default=0)


def _value_bytes(value: Any) -> int:
    """Of a tensor, of lists of them, and of the operations of ``batch_isend_irecv``."""
    if isinstance(value, sys.modules["torch"].Tensor):
        return int(value.numel() * value.element_size())
    if isinstance(value, (list, tuple)):
        return sum(map(_value_bytes, value))
    return _value_bytes(getattr(value, "tensor", ()))


FUNCTIONAL = (
    "all_reduce",
    "all_reduce_",
    "all_reduce_coalesced",
    "all_reduce_coalesced_",
    "all_gather_into_tensor",
    "all_gather_into_tensor_out",
    "all_gather_into_tensor_coalesced",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
    "all_to_all_single",
    "broadcast",
    "broadcast_",
)
"""Operators of ``_c10d_functional``; PyTorch versions lack some."""


def wrap_functional(module: ModuleType) -> None:
    """Put a kernel in front of functional collectives and of waits for them."""
    for name in FUNCTIONAL:
        private.before_collective(name, functools.partial(_run_functional, name.rstrip("_")))
    private.before_collective("wait_tensor", _wait_tensor)


def _run_functional(name: str, call: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
    if not script.active() or not _is_real(arguments[0]):
        return call()
    *_, group = ("", *(each for each in arguments if isinstance(each, str)))
    key, size = (group, name), payload_bytes(arguments)
    if name.startswith(
        "all_gather"
    ):  # the payload is its result, as many times as the group's size, which it is told
        size *= next((each for each in arguments if type(each) is int), 1)
    if name == "all_to_all_single" and len(arguments) > 2 and arguments[1] and arguments[2]:
        ledger.note_dispatch(group, list(arguments[2]), list(arguments[1]))
    result = stamp_call(key, size, call)
    if scope.name == "world":
        scope.issued[name] += 1
        scope.sent[name] += size
    if ledger.counts:
        for each in result if isinstance(result, (list, tuple)) else (result,):
            ledger.goes_on(each.data_ptr(), key)
    return result


def _wait_tensor(call: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
    if not ledger.counts or not _is_real(arguments[0]):
        return call()
    return wait_in_flight(ledger.waited_for(arguments[0].data_ptr()), call)


def _is_real(value: Any) -> bool:
    """Whether a graph is run and not traced."""
    torch = sys.modules["torch"]
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    cuda = torch.cuda
    captured = cuda.is_initialized() and cuda.is_current_stream_capturing()
    return type(first) in (torch.Tensor, torch.nn.Parameter) and not captured
