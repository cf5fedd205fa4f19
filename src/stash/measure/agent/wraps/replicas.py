"""Gradient exchange of DistributedDataParallel, switched with the scope; and what can be known of its buckets.

Scope *self* bypasses DDP's reducer (what ``no_sync()`` does) and its buffer broadcast; a hook that hands its bucket
back would not be enough, because the C++ reducer has collectives of its own. Under scope *node* the reducer gets
another process group and goes on as under *world*, where all is as the script made it. Models that are sharded
instead are ``wraps/sharding``'s.
"""

from __future__ import annotations

import itertools
import weakref
from types import ModuleType
from typing import Any

from stash.core.ladder import ScopeName
from stash.measure.agent import private, script
from stash.measure.agent.wraps.groups import ranks_of
from stash.measure.agent.wraps.scope import scope

_made: list[weakref.ref[Any]] = []
"""DDP instances in the order they were made, which is the same on every rank."""
_ordinary: weakref.WeakKeyDictionary[Any, tuple[bool, bool, Any]] = weakref.WeakKeyDictionary()
_SYNC = "_stash_require_backward_grad_sync"
_hooked: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_builtin: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Names of the communication hooks, in Python and in C++."""
_skipping: weakref.WeakSet[Any] = weakref.WeakSet()


def remember_ddp(module: ModuleType) -> None:
    """Know every DDP instance (``torch.nn.parallel.distributed``)."""
    script.after(
        module.DistributedDataParallel,
        "__init__",
        lambda ddp, *_, **__: _made.append(weakref.ref(ddp)),
    )


def wrap_ddp(module: ModuleType) -> None:
    """Keep track of every DDP instance and of the hooks users register, and switch what it exchanges."""
    remember_ddp(module)
    cls = module.DistributedDataParallel

    def note_hook(ddp: Any, state: Any, hook: Any) -> None:
        _hooked[ddp] = getattr(hook, "__qualname__", type(hook).__qualname__)

    def note_builtin_hook(ddp: Any, comm_hook_type: Any) -> None:
        _builtin[ddp] = str(comm_hook_type)

    # A property, because scripts assign it themselves in every micro-batch of an accumulated step.
    may_sync = property(
        lambda self: self.__dict__.get(_SYNC, True) and _may_exchange(self), _choose_exchange
    )
    script.put(cls, require_backward_grad_sync=may_sync)
    script.after(cls, "register_comm_hook", note_hook)
    script.after(cls, private.BUILTIN_HOOKS, note_builtin_hook)


def _may_exchange(ddp: Any) -> bool:
    return scope.name == "world" or group_in_scope(ddp) is not None


def _choose_exchange(ddp: Any, exchanges: bool) -> None:
    ddp.__dict__[_SYNC] = exchanges
    if not exchanges and _may_exchange(ddp):  # elsewhere the script restores what it read
        _skipping.add(ddp)


def own_hook() -> str | None:
    """The communication hook that the job registered, empty if it has none; ``None`` without DDP."""
    ddps = list_modules()
    names = [_hooked.get(ddp) or _builtin.get(ddp) for ddp in ddps]
    return ", ".join(sorted({name for name in names if name})) if ddps else None


def skips_exchanges() -> bool | None:
    """Whether the job has left out the exchange after a backward pass; ``None`` without DDP."""
    ddps = list_modules()
    return any(ddp in _skipping for ddp in ddps) if ddps else None


def bucket_view() -> bool | None:
    """Whether gradients are views into their buckets, so that none is copied; ``None`` without DDP."""
    ddps = list_modules()
    return all(ddp.gradient_as_bucket_view for ddp in ddps) if ddps else None


def buffer_bytes() -> int | None:
    """Bytes of buffers that the job sends from rank 0 before each forward pass; ``None`` without DDP."""
    ddps = list_modules()
    sent = [ddp for ddp in ddps if _sends_buffers(ddp) and _whole_group(ddp).size() > 1]
    buffers = [buffer for ddp in sent for buffer in ddp.modules_buffers]
    size = sum(buffer.numel() * buffer.element_size() for buffer in buffers)
    return size if ddps else None


def _sends_buffers(ddp: Any) -> bool:
    """As the script made it, whatever the scope."""
    return bool(_ordinary[ddp][1] if ddp in _ordinary else ddp.broadcast_buffers)


def finds_unused() -> bool | None:
    """Whether the graph is searched for parameters without a gradient in each step; ``None`` without DDP."""
    ddps = list_modules()
    found = (ddp.find_unused_parameters and not ddp.static_graph for ddp in ddps)
    return any(found) if ddps else None


def list_modules() -> list[Any]:
    """The DDP instances alive in this process, in the order they were made."""
    return [ddp for ddp in (ref() for ref in _made) if ddp is not None]


def obstacle_to_node_scope() -> str | None:
    """Why gradient exchange cannot be confined to a node in this job, or ``None``."""
    if any(ddp in _builtin for ddp in list_modules()):
        return "the job uses a built-in C++ communication hook, which cannot be confined to a node"
    return None


def list_groups() -> list[Any]:
    """The process groups that gradients are exchanged over."""
    return [_whole_group(ddp) for ddp in list_modules()]


def _whole_group(ddp: Any) -> Any:
    return _ordinary[ddp][2] if ddp in _ordinary else ddp.process_group


def set_scope(name: ScopeName) -> None:
    """Switch gradient exchange, buffer broadcast and all other collectives of this process."""
    for ddp in list_modules():
        if ddp not in _ordinary:
            _ordinary[ddp] = (
                ddp.require_backward_grad_sync,
                ddp.broadcast_buffers,
                ddp.process_group,
            )
    scope.name = name
    for ddp in list_modules():
        sync, buffers, whole = _ordinary[ddp]
        group = group_in_scope(ddp)
        script.put(
            ddp,
            require_backward_grad_sync=sync,  # ``no_sync()`` under scope self has restored a False
            broadcast_buffers=buffers and group is not None,
            process_group=whole if group is None else group,
        )
        private.set_reducers_group(ddp, ddp.process_group)


def group_in_scope(ddp: Any) -> Any:
    """What the scope in force leaves of the group that a DDP exchanges over; ``None`` for this rank alone."""
    whole = _whole_group(ddp)
    if scope.name == "self":
        return None
    if scope.name == "world" or scope.contains_ranks(ranks_of(whole)):
        return whole
    part = scope.parts.get(whole.group_name)
    return None if part is None else part.group


def gradient_facts() -> tuple[list[int], list[tuple[str, Any]]]:
    """Bucket sizes in bytes in the order they are reduced, and (name, parameter) of all trained parameters."""
    buckets: list[int] = []
    named: list[tuple[str, Any]] = []
    for ddp, front in _list_prefixes():
        buckets += private.bucket_bytes(ddp)
        named += [(front + name, p) for name, p in ddp.module.named_parameters() if p.requires_grad]
    return buckets, named


def _list_prefixes() -> list[tuple[Any, str]]:
    """Each DDP, and how the names of its parameters begin."""
    ddps = list_modules()
    return [(ddp, f"{index}." if len(ddps) > 1 else "") for index, ddp in enumerate(ddps)]


def bucket_contents() -> list[tuple[int, tuple[str, ...]]]:
    """Bytes of each bucket, in the order in which they are reduced, and the names of the parameters in it."""
    found = []
    for ddp, front in _list_prefixes():
        trained = [name for name, p in ddp.module.named_parameters() if p.requires_grad]
        reduced = [front + name for name in trained if name not in ddp.parameters_to_ignore]
        places = private.bucket_parameters(ddp)
        if sorted(itertools.chain(*places)) != list(range(len(reduced))):
            continue
        contents = [tuple(reduced[place] for place in bucket) for bucket in places]
        found += list(zip(private.bucket_bytes(ddp), contents, strict=True))
    return found


def reduced_bytes() -> int:
    """Bytes that the reducers themselves exchange in a step; what a user's hook exchanges is seen as it calls."""
    exchanging = [
        ddp for ddp in list_modules() if ddp not in _hooked and _whole_group(ddp).size() > 1
    ]
    return sum(sum(private.bucket_bytes(ddp)) for ddp in exchanging)
