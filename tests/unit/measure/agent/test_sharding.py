"""Sharded models are noticed, whichever library shards them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stash.measure.agent.wraps import sharding

Names = dict[str, tuple[int, ...] | None]


@pytest.fixture(autouse=True)
def sharded(monkeypatch: pytest.MonkeyPatch) -> Names:
    names: Names = {}
    monkeypatch.setattr(sharding, "sharded", names)
    return names


def test_fully_shard_is_noticed_once(sharded: Names) -> None:
    module = SimpleNamespace(fully_shard=lambda model: model)
    sharding.watch_fully_shard(module)
    sharding.watch_fully_shard(module)
    assert module.fully_shard("a model") == "a model"
    assert sharded == {"fully_shard": None}


def test_fully_shard_tells_its_place_among_the_replicas(sharded: Names) -> None:
    module = SimpleNamespace(fully_shard=lambda model, mesh: model)
    sharding.watch_fully_shard(module)
    module.fully_shard("a model", mesh=SimpleNamespace(get_coordinate=lambda: [3]))
    assert sharded == {"fully_shard": (3,)}


@pytest.mark.parametrize(
    ("stage", "names"), [(0, []), (1, ["DeepSpeed ZeRO stage 1"]), (3, ["DeepSpeed ZeRO stage 3"])]
)
def test_deepspeed_shards_from_its_first_stage_on(sharded: Names, stage: int, names: list[str]) -> None:
    class Engine:
        def __init__(self, config: dict[str, int]) -> None:
            self.config = config

        def zero_optimization_stage(self) -> int:
            return self.config["stage"]

    sharding.watch_deepspeed(SimpleNamespace(DeepSpeedEngine=Engine))
    Engine({"stage": stage})
    assert list(sharded) == names
