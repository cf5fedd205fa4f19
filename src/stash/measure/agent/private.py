"""Every private name of PyTorch that Stash relies on, in one place: none is used anywhere else in the agent.

PyTorch promises nothing about them, so ``tests/unit/measure/agent/test_private.py`` checks each against the version
that is installed, and that no other module of the agent reaches for one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import attrgetter, methodcaller
from types import FrameType
from typing import Any

from stash.measure.agent.script import Function, put, surround, wrap

NAMES: Mapping[str, tuple[str, ...]] = {
    "torch": (
        *("Tensor._version", "Tensor._indices", "Tensor._values"),
        *("_C.DisableTorchFunctionSubclass", "_C._dispatch_keyset_full_after"),
        "_C._current_graph_task_id",
    ),
    "torch.ops": ("aten.add.Tensor._schema", "aten.add.Tensor.is_view"),
    "torch.utils.data.dataloader": (
        "_BaseDataLoaderIter._reset",
        "_MultiProcessingDataLoaderIter._reset",
        "_MultiProcessingDataLoaderIter._try_put_index",
        "_MultiProcessingDataLoaderIter._shutdown_workers",
        "DataLoader._get_iterator",
        "_DatasetKind.Iterable",
    ),
    "torch.utils.data._utils.fetch": ("_MapDatasetFetcher.fetch", "_IterableDatasetFetcher.fetch"),
    "torch.utils._python_dispatch": ("TorchDispatchMode", "_get_current_dispatch_mode"),
    "torch._dynamo.utils": ("counters",),
    "torch._functorch.eager_transforms": ("grad_and_value_impl",),
    "torch.distributed.distributed_c10d": (
        "_world.pg_names",
        "_world.pg_map",
        "_set_pg_timeout",
        "_get_default_store",
        "ProcessGroup._get_sequence_number_for_group",
    ),
    "torch._C._distributed_c10d": ("_dump_fr_trace",),
    "torch.nn.parallel.distributed": (
        "DistributedDataParallel._register_builtin_comm_hook",
        "DistributedDataParallel._get_ddp_logging_data",
        "dist.Reducer._update_process_group",
    ),
    "torch.distributed.pipelining.stage": (
        "_PipelineStageBase.forward_one_chunk",
        "_PipelineStageBase.backward_one_chunk",
    ),
    "torch.distributed.fsdp._fully_shard._fsdp_param_group": (
        "FSDPParamGroup._all_gather_process_group",
        "FSDPParamGroup._reduce_scatter_process_group",
        "FSDPParamGroup.wait_for_unshard",
        "FSDPParamGroup.finalize_backward",
    ),
}
"""By module. What only older or newer versions have (FSDP's modules, collectives that were renamed) is looked up
with a default where it is wrapped, and is not listed."""


def disable_subclasses() -> Any:
    """A context in which tensors of any class do what ordinary ones do: no method of that class is called."""
    return sys.modules["torch"]._C.DisableTorchFunctionSubclass()


def is_iterable(loader: Any) -> bool:
    """Whether its data set is an iterable one, without indices."""
    return bool(loader._dataset_kind == 1)


def surround_iterators(dataloader: Any, body: Function) -> None:
    """Have both methods that give a loader's iterator its indices go through ``body``, as ``script.surround`` does.

    ``dataloader`` is the module ``torch.utils.data.dataloader``.
    """
    for name in ("__init__", "_reset"):
        surround(dataloader._BaseDataLoaderIter, name, body)


def surround_starting_over(dataloader: Any, body: Function) -> None:
    """The same for the method that starts an iterator over, of every class that has its own, now or later."""
    _surround_family(dataloader._BaseDataLoaderIter, {"_reset": body})


def surround_loops(dataloader: Any, looping: Function, making: Function | None = None) -> None:
    """The same for the methods of loaders that give an iterator to a loop, and that make one."""
    bodies = {"__iter__": looping} | ({} if making is None else {"_get_iterator": making})
    _surround_family(dataloader.DataLoader, bodies)


def wrap_handing_out(dataloader: Any, wrapped: Function) -> None:
    """Put ``wrapped(original)`` where every loader's iterator hands out its next batch."""
    wrap(dataloader._BaseDataLoaderIter, "__next__", wrapped)


def _surround_family(base: Any, bodies: Mapping[str, Function]) -> None:
    def surround_own(cls: Any) -> None:
        for name in bodies.keys() & vars(cls).keys():
            surround(cls, name, bodies[name])

    def init_subclass(derived: Any, /, **arguments: Any) -> None:
        super(base, derived).__init_subclass__(**arguments)
        surround_own(derived)

    for cls in (base, *base.__subclasses__()):
        surround_own(cls)
    put(base, __init_subclass__=classmethod(init_subclass))


def count_batches(loader: Any) -> int | None:
    """How many batches an epoch has; ``None`` if neither sampler nor data set says."""
    try:
        if not is_iterable(loader):
            return len(loader._index_sampler)
        count = len(loader.dataset)
    except (TypeError, NotImplementedError, AttributeError):
        return None
    if not loader.batch_size:
        return count
    return int(count // loader.batch_size if loader.drop_last else -(-count // loader.batch_size))


new_iterator = methodcaller("_get_iterator")
"""Of a loader, without regard to the one that may persist."""
data_set = attrgetter("_dataset")
"""What a loader's iterator reads."""
index_sampler = attrgetter("_index_sampler")
"""What its indices come from."""
indices = attrgetter("_sampler_iter")
"""The iterator over indices that it draws from."""


def set_indices(iterator: Any, indices: Any) -> None:
    """Let it draw from ``indices``."""
    iterator._sampler_iter = indices


def count_outstanding(iterator: Any) -> int:
    """Batches that workers were asked for and that were not yet handed out, those that came before their turn too."""
    return len(iterator._task_info)


ask_for_one = methodcaller("_try_put_index")
"""Ask the next worker of an iterator for a batch."""


workers_persist = attrgetter("_persistent_workers")
"""Whether an iterator can start over with the worker processes that it has."""


def start_over(iterator: Any, loader: Any) -> None:
    """Begin the data again, with the same workers."""
    iterator._reset(loader)


def shut_down(iterator: Any) -> None:
    """End its workers, if it has any."""
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()


def worker_processes(iterator: Any) -> tuple[Any, ...]:
    """Its workers; none if batches are made in the training process."""
    return tuple(getattr(iterator, "_workers", ()))


fetchers = attrgetter("_MapDatasetFetcher", "_IterableDatasetFetcher")
"""The classes that make batches out of samples, of the module ``torch.utils.data._utils.fetch``."""
version: Callable[[Any], int] = attrgetter("_version")
"""Of a tensor: goes up with every write into it."""


def dispatch_mode() -> Any:
    """The class whose subclasses see every operator that is called."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return TorchDispatchMode


def has_dispatch_mode() -> bool:
    """Whether other code sees every operator already; modes must be left in the order opposite to their entering."""
    from torch.utils import _python_dispatch

    return _python_dispatch._get_current_dispatch_mode() is not None


def backward_pass() -> int | None:
    """A number of the backward pass that this thread is in; ``None`` outside of any."""
    number = sys.modules["torch"]._C._current_graph_task_id()
    return None if number < 0 else int(number)


def overload_packet(operator: Any) -> Any:
    """The operator without regard to argument types; None of a higher-order one."""
    return getattr(operator, "_overloadpacket", None)


def is_view(operator: Any) -> bool:
    """Whether it makes another tensor around the memory of one that it is given."""
    return bool(getattr(operator, "is_view", False))


def written_arguments(operator: Any) -> frozenset[int | str]:
    """The arguments that it writes into, by position and by name."""
    return frozenset(
        key
        for position, argument in enumerate(operator._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for key in (position, argument.name)
    )


def is_strided(tensor: Any) -> bool:
    """Whether its numbers lie in one piece of memory, as those of sparse and nested tensors do not."""
    return tensor.layout is sys.modules["torch"].strided and not tensor.is_nested


_DENSE_PARTS = {
    "torch.sparse_coo": "_indices _values",
    "torch.sparse_csr": "crow_indices col_indices values",
    "torch.sparse_bsr": "crow_indices col_indices values",
    "torch.sparse_csc": "ccol_indices row_indices values",
    "torch.sparse_bsc": "ccol_indices row_indices values",
}


def dense_parts(tensor: Any) -> list[Any]:
    """The ordinary tensors that a sparse or nested one is made of, as they are; raises for one of another kind."""
    names = _DENSE_PARTS.get(str(tensor.layout), "values").split()
    return [getattr(tensor, name)() for name in names]


def has_compiled() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["stats"])


def not_compiled(hook: Function) -> Function:
    """``hook`` as it is also where the script compiles its model, which would trace the hook as well."""
    if "torch._dynamo" not in sys.modules:
        return hook
    kept: Function = sys.modules["torch"].compiler.disable(hook)
    return kept


def current_stream(cuda: Any, device: Any = None) -> Callable[[], Any]:
    """What tells the calling thread's current stream of a CUDA ``device``, of the current one by itself.

    A stream is one object here. PyTorch makes another at every question, which took 6 us on an H200, twice what it
    takes to record an event.
    """
    core = sys.modules["torch"]._C
    ask: Any = getattr(core, "_cuda_getCurrentStream", None)
    if ask is None:  # a build without CUDA
        return partial(cuda.current_stream, device)
    index = device
    if device is not None and not isinstance(device, int):
        index = sys.modules["torch"].device(device).index
    streams: dict[Any, Any] = {}

    def stream() -> Any:
        key = ask(core._cuda_getDevice() if index is None else index)
        if key not in streams:
            streams[key] = cuda.Stream(stream_id=key[0], device_index=key[1], device_type=key[2])
        return streams[key]

    return stream


def sequence_numbers(among: Callable[[Any], bool] = lambda group: True) -> dict[str, int]:
    """How many collectives each process group ``among`` those wanted has started so far, those of C++ code included.

    A group whose backend does not count is left out.
    """
    numbers = {}
    for name, group in groups_by_name().items():
        if among(group):
            with suppress(RuntimeError):
                numbers[name] = int(group._get_sequence_number_for_group())
    return numbers


def default_store() -> Any:
    """The store at which the job's ranks met."""
    return sys.modules["torch.distributed.distributed_c10d"]._get_default_store()


def spans_several_jobs(group: Any) -> bool:
    """Whether ranks met for ``group`` elsewhere than this job's did: then some may be another job's."""
    from torch.distributed import distributed_c10d as c10d

    def find_store(each: Any) -> Any:
        store: Any = c10d._world.pg_map.get(each, (None, None))[1]
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return store

    own, where = find_store(c10d.group.WORLD), find_store(group)
    return own is not None and where is not None and where is not own


def recorded_collectives() -> Any:
    """What the flight recorder holds, pickled by PyTorch itself: a dictionary with ``entries``."""
    recorder: Any = sys.modules["torch._C._distributed_c10d"]
    # its name before 2.8
    dump = getattr(recorder, "_dump_fr_trace", None) or recorder._dump_nccl_trace
    return dump()


def set_timeout(group: Any, timeout: Any) -> None:
    """How long collectives of a group may take."""
    from torch.distributed import distributed_c10d as c10d

    c10d._set_pg_timeout(timeout, group)


BUILTIN_HOOKS = "_register_builtin_comm_hook"
"""The method of DistributedDataParallel that registers C++ communication hooks."""


def set_reducers_group(ddp: Any, group: Any) -> None:
    """The process group that a DistributedDataParallel's C++ reducer exchanges over; its buckets stay as they are."""
    ddp.reducer._update_process_group(group)


def bucket_bytes(ddp: Any) -> list[int]:
    """Sizes of a DistributedDataParallel's gradient buckets, in the order in which they are reduced."""
    logged = ddp._get_ddp_logging_data()
    text = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
    return [int(part) for part in str(text).split(",") if part.strip()]


def bucket_parameters(ddp: Any) -> list[list[int]]:
    """The places of each bucket's parameters among those that are trained; none before DDP has seen their order."""
    text = str(ddp._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices") or "")
    return [list(map(int, part.split())) for part in text.split(",") if part.strip()]


def stage_and_microbatches(schedule: Any) -> tuple[Any, int]:
    """A stage of a pipeline's schedule on this rank, the first if there are several; raises AttributeError."""
    stages = getattr(schedule, "_stages", None) or [schedule._stage]
    return stages[0], int(schedule._n_microbatches)


stage_class = attrgetter("_PipelineStageBase")
"""What the stages of the module ``torch.distributed.pipelining.stage`` are derived from."""
gathering_group = attrgetter("_all_gather_process_group")
"""The one over which FSDP2 gathers the parts of a group of parameters."""
scattering_group = attrgetter("_reduce_scatter_process_group")
"""The one over which it scatters their gradients."""


def groups_by_name() -> dict[str, Any]:
    """Every process group that this rank is in."""
    from torch.distributed import distributed_c10d as c10d

    return {str(name): group for group, name in dict(c10d._world.pg_names).items()}


_libraries: list[Any] = []
"""What was registered with the dispatcher, which lasts as long as these do."""


def before_collective(name: str, hook: Callable[[Callable[[], Any], Any], Any]) -> None:
    """Have a functional collective's calls go through ``hook(call, arguments)``, those of compiled graphs too.

    The kernel stands where the dispatcher would choose a backend: below autograd and tracing, above all devices.
    """
    torch = sys.modules["torch"]
    packet = getattr(torch.ops._c10d_functional, name, None)
    if packet is None:  # of another version
        return
    operator, key = packet.default, torch._C.DispatchKey.BackendSelect
    below = torch._C._dispatch_keyset_full_after(key)

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return hook(lambda: operator.redispatch(keys & below, *args, **kwargs), args)

    _libraries.append(torch.library.Library("_c10d_functional", "IMPL"))
    _libraries[-1].impl(name, kernel, "BackendSelect", with_keyset=True)


def stack_of(thread: int) -> FrameType | None:
    """The innermost frame of a thread of this process; ``None`` once it has ended."""
    return sys._current_frames().get(thread)
