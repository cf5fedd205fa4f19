"""What one machine is and what its links were measured to carry, as records: a ``Host``, and a saved ``Probe``.

Identity first, then measurements, each as the raw seconds of its repetitions. Nothing derived: rates, fits
and findings are computed from these when read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stash.core.records.base import (
    SCHEMA,
    Count,
    Duration,
    Number,
    PlainName,
    Record,
    Sentence,
    Whole,
)
from stash.core.records.circumstances import OtherProgram


class Gpu(Record):
    """One accelerator as NVML and sysfs describe it."""

    index: Count
    name: PlainName
    memory_bytes: Count | None = None
    driver: PlainName | None = None
    pcie: str | None = None
    """Generation and width in use, e.g. ``gen4 x16``; an idle GPU may have trained its link down."""
    pcie_max: str | None = None
    """The most that this GPU in this slot can use."""
    bus: str | None = None
    """PCI address, e.g. ``0000:3b:00.0``."""
    numa_node: Whole | None = None
    nvlinks: Count | None = None
    """Active NVLink lanes."""
    nvlink_bytes_per_second: Number | None = None
    """One direction, all active lanes together, as the driver states their speed."""
    fault: Sentence | None = None
    """The driver's error, for a GPU that does not work."""


class Route(Record):
    """How two GPUs reach each other, as the driver describes it."""

    a: Count
    b: Count
    """Indices of the GPUs, ``a < b``."""
    kind: PlainName
    """``internal``, ``single switch``, ``multi switch``, ``host bridge``, ``node`` or ``system``."""
    nvlinks: Count | None = None
    """NVLink lanes directly between the two; those through a switch are not counted."""


class Nic(Record):
    """One network interface other than loopback."""

    name: PlainName
    bytes_per_second: Number | None = None
    """What the link claims to be; virtual interfaces often claim nothing."""
    driver: PlainName | None = None
    mtu: Whole | None = None
    numa_node: Whole | None = None
    rdma: PlainName | None = None
    """Name of the RDMA device on the same hardware, e.g. ``mlx5_0``."""


class Disk(Record):
    """The file system under a path and the block device under it."""

    path: str
    filesystem: PlainName | None = None
    device: PlainName | None = None
    model: PlainName | None = None
    rotational: bool | None = None
    size_bytes: Whole | None = None
    free_bytes: Whole | None = None


class Limits(Record):
    """What control groups allow this process; ``None`` where they set no limit."""

    cpus: Number | None = None
    memory_bytes: Whole | None = None
    read_bytes_per_second: Number | None = None


class Timing(Record):
    """Moving so many bytes, repeated: the seconds of each repetition, in the order they were taken."""

    bytes: Annotated[Count, Field(ge=1)]
    seconds: tuple[Duration, ...]


class Copy(Record):
    """Copies inside one machine: host memory, host to device and back, device to device.

    Within host memory ``bytes`` counts what is read and what is written, as STREAM does: twice the payload.
    """

    source: PlainName
    """``host`` or ``cuda:0`` …"""
    target: PlainName
    together: bool = False
    """All devices copied at the same time; each has a record of its own."""
    pinned: bool | None = None
    """Whether the host's side was pinned memory; ``None`` between devices."""
    timings: tuple[Timing, ...]


class Exchange(Record):
    """All-reduce of float32 tensors by itself, from small messages to large ones."""

    backend: PlainName
    nodes: Annotated[Count, Field(ge=1)]
    ranks: Annotated[Count, Field(ge=1)]
    timings: tuple[Timing, ...]
    """``bytes`` of the tensor on each rank; seconds of the slowest rank."""


class Stream(Record):
    """TCP from one node to another, in one direction, with so many connections at once."""

    source: Count
    target: Count
    flows: Count
    timings: tuple[Timing, ...]


class DiskRead(Record):
    """Reading files under a path."""

    pattern: PlainName
    """``sequential`` (large files front to back) or ``random`` (whole files of the data set's size, shuffled)."""
    cold: bool
    """Not in the page cache when read."""
    direct: bool
    """Past the page cache altogether (O_DIRECT)."""
    reader: str
    """``stash``; in files of earlier versions ``fio`` too, which means the same."""
    path: str
    file_bytes: Whole
    """Size of one file."""
    resident: Number | None = None
    """Fraction of the pages in the page cache just before."""
    readers: Whole = 1
    timings: tuple[Timing, ...]


class PartFigure(Record):
    """How fast one part computes or moves its own memory: seconds of each repetition, in bursts."""

    device: PlainName
    """``cpu`` or ``cuda:0`` …"""
    name: PlainName
    """``gemm float32 1024x1024x1024`` (m, k, n), ``triad``, ``launch``, ``JPEG`` …; ``, 1 core`` where it is one."""
    unit: Literal["FLOP/s", "bytes/s", "calls/s", "samples/s"]
    work: Number
    """Of one repetition, in that unit without the second. Triad counts each byte read and each byte written."""
    together: bool = False
    """All devices at the same time; each has a record of its own."""
    bursts: tuple[tuple[Duration, ...], ...]
    """In the order they were taken, all other figures' bursts between them: the last one is of a warm machine."""
    cpu_seconds: tuple[Duration, ...] = ()
    """Of each burst, what it took of all cores together; empty for GPUs."""


class PartState(Record):
    """What held one part back while it computed, as the kernel or the driver tells; ``None`` where neither does."""

    device: PlainName
    steal: Number | None = None
    """Of the cores' time, what the machine's own host took."""
    throttled: Number | None = None
    """Of the periods, those in which the quota of the control group was used up."""
    others_cores: Number | None = None
    """Cores that other programs on this machine used."""
    clock: Number | None = None
    """Of the highest streaming multiprocessors' clock, the median while it was busy."""
    megahertz: Number | None = None
    watts: Number | None = None
    watts_limit: Number | None = None
    celsius: Number | None = None
    """The highest."""
    held_by: tuple[Literal["power cap", "power brake", "heat", "hardware"], ...] | None = None
    """What held the clock down in any of the looks."""
    memory_errors: Count | None = None
    """Uncorrectable ones since the driver was loaded."""
    repair_due: bool | None = None
    """Whether pages or rows of memory wait for a reset to be put out of use, or could not be."""
    link_errors: Count | None = None
    """Replays, recoveries and checksum errors of all NVLinks."""
    users: tuple[PlainName, ...] = ()
    """Processes of others that had it open."""


class Unmeasured(Record):
    """A link or a part that was not measured, and why."""

    link: PlainName
    """``compute``, ``copies``, ``exchanges``, ``streams``, ``reads``, or one of them more closely."""
    why: Sentence


class Links(Record):
    """What ``stash probe`` measured on one host."""

    created: str
    """UTC, ISO 8601."""
    elapsed_seconds: Number
    copies: tuple[Copy, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    """Those across nodes stand at node 0."""
    streams: tuple[Stream, ...] = ()
    """From this node to others."""
    reads: tuple[DiskRead, ...] = ()
    figures: tuple[PartFigure, ...] = ()
    states: tuple[PartState, ...] = ()
    skipped: tuple[Unmeasured, ...] = ()


class Host(Record):
    """What one machine is. ``links`` is ``None`` until probed."""

    hostname: PlainName
    cpu: PlainName | None = None
    cores: Count | None = None
    """Cores this process may use."""
    memory_bytes: Count | None = None
    kernel: PlainName | None = None
    gpus: tuple[Gpu, ...] = ()
    topology: str | None = None
    """GPU-to-GPU links, as NVML names them."""
    routes: tuple[Route, ...] = ()
    """The same, pair by pair."""
    disk: PlainName | None = None
    """File system type and device under the data, e.g. ``ext4 on /dev/nvme0n1p1``."""
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    numa_nodes: Whole | None = None
    allowed_nodes: tuple[Count, ...] | None = None
    """NUMA nodes of the cores that this process may use."""
    vector: PlainName | None = None
    """The widest vector instructions of its cores: ``amx``, ``avx512``, ``avx2``, ``avx``, ``sve`` or ``neon``."""
    huge_pages: PlainName | None = None
    """``always``, ``madvise`` or ``never``."""
    programs: tuple[OtherProgram, ...] = ()
    """What else used its cores while it was probed; of node 0 only."""
    limits: Limits | None = None
    steal_fraction: Number | None = None
    """CPU time taken by other tenants while measuring."""
    virtualization: PlainName | None = None
    cloud: PlainName | None = None
    """``aws``, ``gcp``, ``azure`` …, as the firmware names it."""
    instance: PlainName | None = None
    """Its type there, e.g. ``p3.8xlarge``."""
    instance_source: PlainName | None = None
    """How ``instance`` is known: ``dmi``, ``metadata`` or ``given``."""
    links: Links | None = None


class Probe(Record):
    """The saved artefact of ``stash probe``: every node's host with its measured links."""

    schema_version: Whole = SCHEMA
    stash_version: PlainName
    created: str
    hosts: tuple[Host, ...]
    """In the order of the nodes."""
    budget_seconds: Number
    elapsed_seconds: Number
    notes: tuple[Sentence, ...] = ()
