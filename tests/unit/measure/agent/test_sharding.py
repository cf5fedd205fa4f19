"""Sharded models are noticed, whichever library shards them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stash.measure.agent.wraps import sharding

Names = dict[str, tuple[int, ...] | None]


@pytest.fixture(autouse=True)
def sharded(monkeypatch) -> Names:
    names: Names = {}
    monkeypatch.setattr(sharding, "sharded", names)
    return names


def test_fully_shard_is_noticed_once(sharded: Names):
    module = SimpleNamespace(fully_shard=lambda model: model)
    sharding.watch_fully_shard(module)
    sharding.watch_fully_shard(module)
    assert module.fully_shard("a model") == "a model"
    assert sharded == {"fully_shard": None}


class Mesh:
    """One of two dimensions, dp × tp of four ranks, as rank 3 sees it, or one of those dimensions."""

    def __init__(self, **dimensions):
        self.mesh_dim_names = tuple(dimensions)
        self._places = dimensions
        self.ndim = len(dimensions)

    def get_coordinate(self):
        return [place for place, _ in self._places.values()]

    def size(self, at):
        return len(self._places[self.mesh_dim_names[at]][1])

    def get_group(self, at) -> SimpleNamespace:
        name = self.mesh_dim_names[at]
        return SimpleNamespace(group_name=name, ranks=self._places[name][1])


DP, TP = (1, (1, 3)), (1, (2, 3))


def divided(mesh: Mesh, *shards) -> SimpleNamespace:
    """A DTensor over that mesh."""
    return SimpleNamespace(
        device_mesh=mesh,
        placements=[SimpleNamespace(is_shard=lambda each=each: each) for each in shards],
    )


@pytest.fixture
def _ranks(monkeypatch):
    monkeypatch.setattr(sharding, "ranks_of", lambda group: group.ranks)
    monkeypatch.setattr(sharding, "_of_replicas", set())


def shard(**how):
    module = SimpleNamespace(fully_shard=lambda model, **given: model)
    sharding.watch_fully_shard(module)
    module.fully_shard("a model", **how)


@pytest.mark.usefixtures("_ranks")
def test_fully_shard_tells_its_place_among_the_replicas(sharded: Names):
    shard(mesh=Mesh(dp=(3, (0, 1, 2, 3))))
    assert sharded == {"fully_shard": (3,)}
    shard(mesh=Mesh(dp=DP, tp=TP), dp_mesh_dims=SimpleNamespace(shard="dp", replicate=None))
    assert sharded == {"fully_shard": (1,)}


@pytest.mark.usefixtures("_ranks")
def test_parameters_divided_over_a_mesh_are_of_one_replica(sharded: Names):
    whole = [SimpleNamespace(), divided(Mesh(tp=TP), False), divided(Mesh(tp=(0, (3,))), True)]
    assert sharding.ranks_of_one_replica(whole) == ()
    assert sharding.ranks_of_one_replica([*whole, divided(Mesh(tp=TP), True)]) == (2, 3)


@pytest.mark.usefixtures("_ranks")
def test_what_fully_shard_divides_among_replicas_is_no_part_of_one(sharded: Names):
    parameters = [divided(Mesh(dp=DP, tp=TP), True, True)]
    shard(mesh=Mesh(dp=DP))
    assert sharding.ranks_of_one_replica(parameters) == (2, 3)
    shard(mesh=Mesh(dp=DP, tp=TP))  # both are replicas of FSDP's, as in hybrid sharding
    assert sharding.ranks_of_one_replica(parameters) == ()


@pytest.mark.usefixtures("_ranks")
def test_fully_shard_without_a_mesh_has_replicas_only(sharded: Names):
    shard()
    assert sharding.ranks_of_one_replica([divided(Mesh(dp=DP), True)]) == ()


def test_fsdp_tells_its_place_in_the_group_that_it_is_given(sharded: Names):
    class Wrapper:
        def __init__(self, module, process_group=None): ...

    sharding.watch_fsdp(SimpleNamespace(FullyShardedDataParallel=Wrapper))
    group = SimpleNamespace(rank=lambda: 2)
    for arguments, named in (
        (("model", group), {}),
        ((), {"module": "model", "process_group": group}),
    ):
        Wrapper(*arguments, **named)
        assert sharded.pop("FullyShardedDataParallel") == (2,)
    Wrapper("model")
    assert sharded["FullyShardedDataParallel"] is None


@pytest.mark.parametrize(
    ("stage", "names"), [(0, []), (1, ["DeepSpeed ZeRO stage 1"]), (3, ["DeepSpeed ZeRO stage 3"])]
)
def test_deepspeed_shards_from_its_first_stage_on(sharded: Names, stage, names):
    class Engine:
        def __init__(self, config):
            self.config = config

        def zero_optimization_stage(self):
            return self.config["stage"]

    sharding.watch_deepspeed(SimpleNamespace(DeepSpeedEngine=Engine))
    Engine({"stage": stage})
    assert list(sharded) == names
