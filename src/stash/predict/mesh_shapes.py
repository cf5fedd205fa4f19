"""Shapes in which ranks can share a model: data × shard × pipeline × tensor, which axis is which, and how groups lie.

Only whole numbers; what a step takes in another shape is ``mesh``'s.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stash.analysis.seen import OF_DATA, groups_of
from stash.core.errors import UnitError, UserError
from stash.core.records.profile import MeshAxis, Profile

ALL = "all"
"""Typed for every shape."""
_NAMES: Mapping[str, tuple[str, ...]] = {
    "data": OF_DATA,
    "shard": ("shard", "shards", "fsdp", "dp_shard"),
    "pipeline": ("pipeline", "pp"),
    "tensor": ("tensor", "tp"),
}
"""What jobs call these axes."""
_DIVIDES = ("all_gather", "reduce_scatter")
_EXAMPLE = "write it like data=2,pipeline=4,tensor=2, or `all` for every one"


class Mesh(NamedTuple):
    """Ranks along each axis."""

    data: int = 1
    shard: int = 1
    pipeline: int = 1
    tensor: int = 1

    @property
    def ranks(self) -> int:
        return math.prod(self)

    @property
    def replicas(self) -> int:
        """That train on samples of their own."""
        return self.data * self.shard

    def __str__(self) -> str:
        return (
            ",".join(f"{name}={size}" for name, size in self._asdict().items() if size > 1)
            or "data=1"
        )


def read_mesh(text: str) -> Mesh | str:
    """``"data=2,pipeline=4"`` or ``"all"``; raises UnitError."""
    if text.strip() == ALL:
        return ALL
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (each.strip() for each in part.partition("="))
        if (
            name not in Mesh._fields
            or not size.isdecimal()
            or not 1 <= int(size) <= 2**20
            or name in sizes
        ):
            raise UnitError(
                f"axes are {', '.join(Mesh._fields)}, each once, with whole numbers of ranks; {_EXAMPLE}"
            )
        sizes[name] = int(size)
    return Mesh(**sizes)


class MeshDivision(NamedTuple):
    """How a profiled job's ranks share its model."""

    mesh: Mesh
    order: tuple[str, ...]
    """Its axes of several ranks, the last with neighbouring ranks."""
    axes: Mapping[str, str]
    """Which of ``Mesh`` they are, by the job's names."""

    def group(self, mesh: Mesh, axis: str, devices: int) -> GroupPlace:
        """How a group along ``axis`` lies where ``mesh`` has the same order of axes, on nodes of so many devices."""
        shape = tuple(MeshAxis(name=name, ranks=getattr(mesh, name)) for name in self.order)
        groups = groups_of(shape, axis, list(range(mesh.ranks)))
        places = [Counter(rank // devices for rank in group) for group in groups]
        together = max(nodes[min(nodes)] for nodes in places)
        return GroupPlace(len(groups[0]), max(map(len, places)), together)


class GroupPlace(NamedTuple):
    """Where the ranks of a group lie, of the one that is spread most."""

    ranks: int
    nodes: int
    together: int
    """On one node."""


def division_of(profile: Profile) -> MeshDivision:
    """Of the profiled job; raises UserError where its mesh is unknown, or has axes that cannot be moved."""
    several = [axis for axis in profile.workload.mesh if axis.ranks > 1]
    if not several:
        raise UserError(
            "--mesh: the job keeps no mesh that says how its ranks share the model (a DeviceMesh with names, or "
            "Megatron's groups); where only data are shared, ask with --nodes"
        )
    axes: dict[str, str] = {}
    for axis in several:
        found = next((own for own, names in _NAMES.items() if axis.name.lower() in names), None)
        if found is None:
            raise UserError(
                f"--mesh: what ranks share along the axis {axis.name} is not known, so it cannot be moved; only "
                f"{', '.join(Mesh._fields)} can"
            )
        # Of an axis of data that gathers parameters the ranks hold shards.
        kinds = [use.kind for use in profile.workload.groups if use.name == axis.name]
        divides = any(each in kind for kind in kinds for each in _DIVIDES)
        axes[axis.name] = "shard" if found == "data" and divides else found
    order = tuple(axes.values())
    twice = next((name for name in order if order.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"--mesh: several axes of the job are {twice}: {', '.join(axes)}")
    mesh = Mesh(**{axes[axis.name]: axis.ranks for axis in several})
    if mesh.ranks != profile.world_size:
        raise UserError(
            f"--mesh: the job's mesh ({mesh}) has {mesh.ranks} ranks, and {profile.world_size} were "
            "profiled: its groups do not match it"
        )
    return MeshDivision(mesh, order, axes)


def iter_meshes(known: MeshDivision) -> Iterator[Mesh]:
    """Every way to divide as many ranks over the axes that the profiled mesh has."""
    ranks = known.mesh.ranks
    sizes = [size for size in range(1, ranks + 1) if ranks % size == 0]
    for shape in itertools.product(sizes, repeat=len(known.order)):
        if math.prod(shape) == ranks:
            yield Mesh(**dict(zip(known.order, shape, strict=True)))
