"""``stash lab zoo`` as JSON for programs; its text is among the golden commands."""

from __future__ import annotations

import json

import pytest

from stash.lab.command import ZooOptions, zoo
from stash.lab.zoo.registry import WORKLOADS


def test_the_listing_names_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    zoo(ZooOptions(json=True))
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == list(WORKLOADS)
