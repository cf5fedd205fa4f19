"""Trainers that count their own steps go on training while a profile is taken, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from climbing import silence
from listening import Heard

from stash.measure.agent import script
from stash.measure.agent.wraps import frameworks
from stash.measure.agent.wraps.loader import PLENTY


@pytest.fixture
def heard() -> Iterator[Heard]:
    listener = Heard()
    script.listen(listener)
    yield listener
    silence()


class LightningTrainer:
    def __init__(self) -> None:
        self.fit_loop = SimpleNamespace(max_epochs=2, epoch_loop=SimpleNamespace(max_steps=10))
        self.limit_val_batches, self.loggers = 1.0, ["a service"]
        self.callbacks = [SimpleNamespace(best_model_path="best.ckpt"), "progress"]

    def fit(self, model: str) -> str:
        return f"trained {model}"


def test_lightning_has_no_limit_no_validation_no_checkpoint_and_no_logger(heard: Heard):
    frameworks.wrap_lightning(SimpleNamespace(Trainer=LightningTrainer))
    trainer = LightningTrainer()
    assert trainer.fit("it") == "trained it"
    assert trainer.fit_loop.max_epochs == PLENTY
    assert trainer.fit_loop.epoch_loop.max_steps == -1
    assert (trainer.limit_val_batches, trainer.loggers, trainer.callbacks) == (0, [], ["progress"])
    heard.listens = False
    untouched = LightningTrainer()
    untouched.fit("it")
    assert (untouched.fit_loop.max_epochs, untouched.limit_val_batches) == (2, 1.0)
