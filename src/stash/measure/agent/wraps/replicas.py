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
from stash.measure.agent.data import batches
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


def exchange_facts() -> dict[str, Any]:
    """Fields of ``JobFacts`` that tell what DDP does in a step; none without DDP."""
    ddps = list_modules()
    if not ddps:
        return {}
    hooks = {_hooked.get(ddp) or _builtin.get(ddp) or "" for ddp in ddps}
    # as the script made it, whatever the scope
    sent = [
        buffer
        for ddp in ddps
        if (_ordinary[ddp][1] if ddp in _ordinary else ddp.broadcast_buffers)
        and _whole_group(ddp).size() > 1
        for buffer in ddp.modules_buffers
    ]
    return {
        "exchange_hook": ", ".join(sorted(hooks - {""})),
        "skips_exchanges": any(ddp in _skipping for ddp in ddps),
        "bucket_view": all(ddp.gradient_as_bucket_view for ddp in ddps),
        "buffer_bytes": sum(buffer.numel() * buffer.element_size() for buffer in sent),
        "finds_unused": any(ddp.find_unused_parameters and not ddp.static_graph for ddp in ddps),
    }


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
    was_alone = scope.name == "self"
    scope.name = name
    for ddp in list_modules():
        if was_alone and name != "self" and ddp.find_unused_parameters:
            _define_gradients_once(ddp)
        sync, buffers, whole = _ordinary[ddp]
        group = group_in_scope(ddp)
        script.put(
            ddp,
            require_backward_grad_sync=sync,  # ``no_sync()`` under scope self has restored a False
            broadcast_buffers=buffers and group is not None,
            process_group=whole if group is None else group,
        )
        private.set_reducers_group(ddp, ddp.process_group)


def _define_gradients_once(ddp: Any) -> None:
    """Let the next pass that exchanges find a gradient of every parameter.

    The reducer notes which parameters backward passes use, and forgets it only where it exchanges: a gradient that it
    misses then, as of a parameter that only passes of one rank alone have used, it takes for a mistake of its own.
    """

    def define(_: Any) -> None:
        for parameter in ddp.module.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = parameter.new_zeros(parameter.shape)

    def follow_pass(_: Any, inputs: Any, outputs: Any) -> None:
        tensors = [each for each in batches.iter_tensors(outputs) if each.requires_grad]
        if tensors and ddp.require_backward_grad_sync:
            handle.remove()
            for tensor in tensors:
                tensor.register_hook(define)

    handle = ddp.register_forward_hook(follow_pass)


def group_in_scope(ddp: Any) -> Any:
    """What the scope in force leaves of the group that a DDP exchanges over; ``None`` for this rank alone."""
    whole = _whole_group(ddp)
    if scope.name == "self":
        return None
    if scope.name == "world" or not scope.reaches(whole):
        return whole
    return getattr(scope.parts.get(whole.group_name), "group", None)


def gradient_facts() -> tuple[list[int], list[tuple[str, Any]]]:
    """Bucket sizes in bytes in the order they are reduced, and (name, parameter) of all trained parameters."""
    ddps = list_modules()
    sizes = [size for ddp in ddps for size in private.bucket_bytes(ddp)]
    return sizes, [named for ddp in ddps for named in _list_trained(ddp, ddps)]


def _list_trained(ddp: Any, ddps: list[Any]) -> list[tuple[str, Any]]:
    """Names and parameters; where there are several DDPs, names begin with a number."""
    front = f"{ddps.index(ddp)}." if len(ddps) > 1 else ""
    named = ddp.module.named_parameters()
    return [(front + name, parameter) for name, parameter in named if parameter.requires_grad]


def bucket_contents() -> list[tuple[int, tuple[str, ...]]]:
    """Bytes of each bucket, in the order in which they are reduced, and the names of the parameters in it."""
    ddps, found = list_modules(), []
    for ddp in ddps:
        ignored = {id(p) for n, p in ddp.module.named_parameters() if n in ddp.parameters_to_ignore}
        names = [name for name, p in _list_trained(ddp, ddps) if id(p) not in ignored]
        places = private.bucket_parameters(ddp)
        if sorted(itertools.chain(*places)) == list(range(len(names))):
            contents = [tuple(names[place] for place in bucket) for bucket in places]
            found += list(zip(private.bucket_bytes(ddp), contents, strict=True))
    return found


def reduced_bytes() -> int:
    """Bytes that the reducers themselves exchange in a step; what a user's hook exchanges is seen as it calls."""
    exchanging = [
        ddp for ddp in list_modules() if ddp not in _hooked and _whole_group(ddp).size() > 1
    ]
    return sum(sum(private.bucket_bytes(ddp)) for ddp in exchanging)
