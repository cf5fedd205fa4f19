"""Fleets that train asynchronously: a stranger on the network of servers and workers, without their secret."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.faults.case import Case, Expected, Room
from tests.faults.cases.networks import has_testbed
from tests.faults.server_attacks import ATTACKS

FLEET = Path(__file__).parents[1] / "fleet.py"
WIDTH_64_MB = 890_000
"""Of the layer of a model with 64 MB of parameters, which 30 connections used to multiply."""


def attacked(attack: str) -> Callable[[Room], tuple[str, ...]]:
    width = str(WIDTH_64_MB if "30 connections" in attack else 64)
    return lambda room: (sys.executable, str(FLEET), attack, "--width", width)


CASES = [
    Case(
        "fleets", f"a stranger on the network of the servers: {attack}", program=attacked(attack), needs=has_testbed,
        expected=Expected(
            says=("the run was undisturbed",), never=("Traceback",), rounds=None, seconds=180,
            leaves=("ray*", "stash-*"), writes=("*",),
        ),
    )
    for attack in ATTACKS
]  # fmt: skip
