"""Sockets of multiprocessing lie in the run's folder, unless its name is too long for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from stash.measure.agent.wraps import steps
from stash.measure.protocol.orders import VARIABLE, Orders

LISTEN = """
import multiprocessing.util
from multiprocessing.connection import Listener
from stash.measure.agent.wraps.steps import keep_sockets_in_run
keep_sockets_in_run(multiprocessing.util)
with Listener(family="AF_UNIX") as listener:
    print(listener.address)
"""


@pytest.mark.parametrize(("name", "inside"), [("s", True), ("s" * 100, False)])
def test_a_socket_is_where_it_fits(name, inside):
    with TemporaryDirectory(prefix=name) as folder:
        launch = Path(folder) / "launch-0-0"
        launch.mkdir()
        environment = {
            VARIABLE: str(Orders(str(launch), ("solo",), 1.0).write()),
            "PYTHONPATH": ":".join(sys.path),
        }
        program = [sys.executable, "-c", LISTEN]
        address = subprocess.run(
            program, env=environment, capture_output=True, text=True, check=True
        ).stdout
        assert address.startswith(f"{folder}/sockets/") is inside


def test_outside_a_profile_nothing_is_changed(monkeypatch):
    monkeypatch.setattr(steps, "current_orders", lambda: None)
    steps.keep_sockets_in_run(None)  # type: ignore[arg-type]
