"""Trainers that count their own steps go on training while a profile is taken, and only then."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

from listening import Recorder

from stash.measure.agent.wraps import frameworks
from stash.measure.agent.wraps.frameworks import PLENTY


class LightningTrainer:
    def __init__(self):
        self.fit_loop = SimpleNamespace(max_epochs=2, epoch_loop=SimpleNamespace(max_steps=10))
        self.num_sanity_val_steps, self.limit_val_batches, self.loggers = 2, 1.0, ["a service"]
        self.callbacks = [
            SimpleNamespace(best_model_path="best.ckpt"),
            SimpleNamespace(stopped_epoch=0),
            "progress",
        ]

    def fit(self, model):
        return f"trained {model}"


def test_lightning_has_no_limit_a_batch_of_validation_no_checkpoint_and_no_service(
    listener: Recorder, monkeypatch
):
    dummies = ModuleType("lit.loggers.logger")
    dummies.DummyLogger = type("DummyLogger", (), {})
    for name in ("lit", "lit.loggers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, dummies.__name__, dummies)
    module = SimpleNamespace(Trainer=LightningTrainer, __name__="lit.trainer.trainer")
    frameworks.wrap_lightning(module)
    trainer = LightningTrainer()
    assert trainer.fit("it") == "trained it"
    assert "validates on one batch" in " ".join(map(str, listener.events))
    assert trainer.fit_loop.max_epochs == PLENTY
    assert trainer.fit_loop.epoch_loop.max_steps == -1
    assert (trainer.num_sanity_val_steps, trainer.limit_val_batches, trainer.callbacks) == (
        0,
        1,
        ["progress"],
    )
    assert [type(logger).__name__ for logger in trainer.loggers] == ["DummyLogger"]
    listener.listens = False
    untouched = LightningTrainer()
    untouched.fit("it")
    assert (untouched.fit_loop.max_epochs, untouched.limit_val_batches) == (2, 1.0)


class TrainerCallback:
    """As transformers' own: an event is a method, handed the decisions so far."""

    def on_step_end(self, args, state, control):
        return control


class Deciding(TrainerCallback):
    """Wants everything after every step, as a trainer's own callback does at its limits."""

    def on_step_end(self, args, state, control):
        control.should_evaluate = control.should_save = control.should_training_stop = (
            control.should_log
        ) = True
        return control


class HfTrainer:
    def __init__(self):
        self.args = SimpleNamespace(max_steps=10, eval_strategy="steps", eval_on_start=True)
        service = type(
            "Service", (TrainerCallback,), {"__module__": "transformers.integrations.it"}
        )()
        self.callback_handler = SimpleNamespace(callbacks=[Deciding(), service])
        self.callback_handler.remove_callback = self.callback_handler.callbacks.remove

    def add_callback(self, callback):
        self.callback_handler.callbacks.append(callback)

    def train(self) -> SimpleNamespace:
        control = SimpleNamespace()
        for callback in self.callback_handler.callbacks:
            control = callback.on_step_end(self.args, None, control)
        return control


def test_hf_trainer_neither_evaluates_nor_saves_nor_stops_and_keeps_its_strategies(
    listener: Recorder,
):
    module = SimpleNamespace(
        Trainer=type("Trainer", (HfTrainer,), {}), TrainerCallback=TrainerCallback
    )
    frameworks.wrap_transformers(module)
    trainer = module.Trainer()
    control = trainer.train()
    assert "neither evaluates nor saves" in " ".join(map(str, listener.events))
    assert (trainer.args.max_steps, trainer.args.eval_strategy) == (PLENTY, "steps")
    assert (control.should_evaluate, control.should_save, control.should_training_stop) == (
        False,
        False,
        False,
    )
    assert control.should_log
    assert [type(callback).__name__ for callback in trainer.callback_handler.callbacks] == [
        "Deciding",
        "OnlyTraining",
    ]
    listener.listens = False
    assert module.Trainer().train().should_training_stop
