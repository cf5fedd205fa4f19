"""``stash lab zoo``: the list fits a terminal, is JSON for programs, and needs no torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stash.lab.zoo.registry import WORKLOADS


def test_listing_needs_no_torch() -> None:
    code = (
        "import sys; from stash.lab.command import ZooOptions, zoo; zoo(ZooOptions()); zoo(ZooOptions(json=True)); "
    )
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_listing_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from stash.lab.command import ZooOptions, zoo

    monkeypatch.setenv("COLUMNS", "80")
    zoo(ZooOptions())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.split()[0] in WORKLOADS for line in lines if line.strip()) == len(WORKLOADS)
    assert len(lines) == len(WORKLOADS) + 1 + 3 * 3 + 2  # Nothing wrapped: a title and a head per group, a foot.
    zoo(ZooOptions(json=True))
    listed = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in listed] == list(WORKLOADS)
