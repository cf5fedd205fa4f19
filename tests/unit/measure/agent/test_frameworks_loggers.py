"""Trackers are off in a profile whatever the script asks of them, unless they are to be kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from listening import Recorder
from ranks_in_memory import orders

from stash.measure.agent.wraps import frameworks


@pytest.fixture
def listener(listener: Recorder, tmp_path, monkeypatch) -> Recorder:
    monkeypatch.setattr(frameworks, "current_orders", lambda: orders(tmp_path))
    return listener


def init(project, mode=None):
    """As ``wandb.init`` is called."""
    return {"project": project, "mode": mode}


class Writer:
    """As ``SummaryWriter`` is made."""

    def __init__(self, log_dir=None, comment=""):
        self.log_dir, self.comment = log_dir, comment


def test_a_mode_the_script_asks_for_is_overruled_and_said_once_each_time(listener: Recorder):
    module = SimpleNamespace(init=init)
    frameworks.wrap_wandb(module)
    assert module.init("mine", mode="online") == {"project": "mine", "mode": "disabled"}
    assert listener.events == [
        "W&B was switched off for the profile (--keep-logging keeps it): steps lack its own time"
    ]


def test_event_files_go_where_they_are_thrown_away(listener: Recorder, tmp_path):
    module = SimpleNamespace(
        SummaryWriter=type("SummaryWriter", (Writer,), {"__init__": Writer.__init__})
    )
    frameworks.wrap_tensorboard(module)
    writer = module.SummaryWriter("runs/mine", comment="best")
    assert (writer.log_dir, writer.comment) == (
        str(orders(tmp_path).files.discarded / "tensorboard"),
        "best",
    )


def test_with_keep_logging_nothing_is_wrapped(tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks, "current_orders", lambda: orders(tmp_path, keep_logging=True))
    module = SimpleNamespace(init=init)
    frameworks.wrap_wandb(module)
    assert module.init is init
