"""Gradient exchange: switching the scope of DistributedDataParallel, and noticing sharded models.

Scope *self* bypasses DDP's reducer (what ``no_sync()`` does) and its buffer broadcast; a hook that hands
its bucket back would not be enough, because the C++ reducer has collectives of its own. Scope *node* needs
a communication hook whose collective can be confined; one is registered only on jobs that have that rung.
"""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import Any

from stash.base.ladder import ScopeName
from stash.measure.agent import private
from stash.measure.agent.wraps.scope import scope

_made: list[weakref.ref[Any]] = []
"""DDP instances in the order they were made, which is the same on every rank."""
_ordinary: weakref.WeakKeyDictionary[Any, tuple[bool, bool, Any]] = weakref.WeakKeyDictionary()
_SYNC = "_stash_require_backward_grad_sync"
_hooked: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_builtin: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Names of the communication hooks, in Python and in C++."""
_skipping: weakref.WeakSet[Any] = weakref.WeakSet()
sharded: list[str] = []
"""Names of sharding wrappers the script used; their parameter all-gather cannot be switched off."""


def wrap_ddp(module: ModuleType) -> None:
    """Keep track of every DDP instance and of the hooks users register."""
    cls = module.DistributedDataParallel
    init, register = cls.__init__, cls.register_comm_hook

    @functools.wraps(init)
    def remembering_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _made.append(weakref.ref(self))

    @functools.wraps(register)
    def remembering_register(self: Any, state: Any, hook: Any) -> Any:
        _hooked[self] = getattr(hook, "__qualname__", type(hook).__qualname__)
        return register(self, state, hook)

    def remembering_builtin(builtin: Any) -> Any:
        @functools.wraps(builtin)
        def remembering(self: Any, kind: Any) -> Any:
            _builtin[self] = str(kind)
            return builtin(self, kind)

        return remembering

    # A property, because scripts assign it themselves in every micro-batch of an accumulated step.
    cls.require_backward_grad_sync = property(
        lambda self: self.__dict__.get(_SYNC, True) and scope.name != "self",
        _choose_exchange,
    )
    cls.__init__ = remembering_init
    cls.register_comm_hook = remembering_register
    private.wrap_builtin_hooks(cls, remembering_builtin)


def _choose_exchange(ddp: Any, exchanges: bool) -> None:
    ddp.__dict__[_SYNC] = exchanges
    if not exchanges and scope.name != "self":  # there the script restores what it was told
        _skipping.add(ddp)


def own_hook() -> str | None:
    """The hook that the job registered, empty if it has none; ``None`` without DDP. Ask before Stash adds its own."""
    ddps = modules()
    names = [_hooked.get(ddp) or _builtin.get(ddp) for ddp in ddps]
    return ", ".join(sorted({name for name in names if name})) if ddps else None


def skips_exchanges() -> bool | None:
    """Whether the job has left out the exchange after a backward pass; ``None`` without DDP."""
    ddps = modules()
    return any(ddp in _skipping for ddp in ddps) if ddps else None


def watch_fsdp(module: ModuleType) -> None:
    """Notice FullyShardedDataParallel."""
    cls = module.FullyShardedDataParallel
    init = cls.__init__

    @functools.wraps(init)
    def noticing_init(self: Any, *args: Any, **kwargs: Any) -> None:
        if "FullyShardedDataParallel" not in sharded:
            sharded.append("FullyShardedDataParallel")
        init(self, *args, **kwargs)

    cls.__init__ = noticing_init


def watch_fully_shard(module: ModuleType) -> None:
    """Notice FSDP2's ``fully_shard``."""
    original = module.fully_shard
    if getattr(original, "noticed_by_stash", False):
        return

    @functools.wraps(original)
    def noticing(*args: Any, **kwargs: Any) -> Any:
        if "fully_shard" not in sharded:
            sharded.append("fully_shard")
        return original(*args, **kwargs)

    noticing.noticed_by_stash = True  # type: ignore[attr-defined]
    module.fully_shard = noticing  # type: ignore[attr-defined]


def modules() -> list[Any]:
    """The DDP instances alive in this process, in the order they were made."""
    return [ddp for ddp in (ref() for ref in _made) if ddp is not None]


def obstacle_to_node_scope() -> str | None:
    """Why gradient exchange cannot be confined to a node in this job, or ``None``."""
    from torch.distributed import distributed_c10d as c10d

    for ddp in modules():
        if ddp in _builtin:
            return "the job uses a built-in C++ communication hook, which cannot be confined to a node"
        if ddp.process_group.size() != c10d.get_world_size():
            return "the job's DDP runs over a process group of its own"
    return None


def prepare_node_scope() -> None:
    """Give every DDP without a user's hook PyTorch's own all-reduce hook, which calls the wrapped collective."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    for ddp in modules():
        if ddp not in _hooked:
            ddp.register_comm_hook(None, default_hooks.allreduce_hook)


def set_scope(name: ScopeName) -> None:
    """Switch gradient exchange, buffer broadcast and all other collectives of this process."""
    for ddp in modules():
        if ddp not in _ordinary:
            _ordinary[ddp] = (ddp.require_backward_grad_sync, ddp.broadcast_buffers, ddp.process_group)
    scope.name = name
    for ddp in modules():
        sync, buffers, group = _ordinary[ddp]
        ddp.require_backward_grad_sync = sync  # ``no_sync()`` under scope self has restored a False
        ddp.broadcast_buffers = buffers and name != "self"
        ddp.process_group = scope.node_group if name == "node" else group


def gradient_facts() -> tuple[list[int], list[tuple[str, Any]]]:
    """Bucket sizes in bytes in the order they are reduced, and (name, parameter) of all trained parameters."""
    buckets: list[int] = []
    named: list[tuple[str, Any]] = []
    several = len(modules()) > 1
    for index, ddp in enumerate(modules()):
        buckets += private.bucket_bytes(ddp)
        front = f"{index}." if several else ""
        named += [(front + name, p) for name, p in ddp.module.named_parameters() if p.requires_grad]
    return buckets, named
