"""Sharded models are noticed, whichever library shards them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stash.measure.agent.wraps import sharding


@pytest.fixture(autouse=True)
def sharded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(sharding, "sharded", names)
    return names


def test_fully_shard_is_noticed_once(sharded: list[str]) -> None:
    module = SimpleNamespace(fully_shard=lambda model: model)
    sharding.watch_fully_shard(module)
    sharding.watch_fully_shard(module)
    assert module.fully_shard("a model") == "a model"
    assert sharded == ["fully_shard"]


@pytest.mark.parametrize(
    ("stage", "names"), [(0, []), (1, ["DeepSpeed ZeRO stage 1"]), (3, ["DeepSpeed ZeRO stage 3"])]
)
def test_deepspeed_shards_from_its_first_stage_on(sharded: list[str], stage: int, names: list[str]) -> None:
    class Engine:
        def __init__(self, config: dict[str, int]) -> None:
            self.config = config

        def zero_optimization_stage(self) -> int:
            return self.config["stage"]

    sharding.watch_deepspeed(SimpleNamespace(DeepSpeedEngine=Engine))
    Engine({"stage": stage})
    assert sharded == names
