"""Every option that takes a time refuses a bare number: 24 may be hours as well as seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main

from stash.cli.main import app
from tests.support import commands

RUN = str(Path(__file__).parents[2] / "golden" / "one-node.stash.json")
TRAIN = ("recommend", RUN, "--epochs", "1", "--samples", "1000")
FLEET = ("spot", "plan", "--pool", "pool.yaml", "--loss", "0.1")
WORDS = {
    "recommend --deadline": TRAIN,
    "recommend --start": TRAIN,
    "whatif --lasting": ("whatif", RUN),
    "spot plan --deadline": FLEET,
    "spot plan --start": (
        "spot",
        "plan",
        RUN,
        "--curve",
        "c.json",
        "--cloud",
        "aws",
        "--loss",
        "1",
        "--deadline",
        "6h",
    ),
    "spot learn --budget": ("spot", "learn", "job.py:job"),
    "spot run --checkpoint-every": ("spot", "run", "job.plan.json", "job.py:job", "--on", "local"),
    "query --timeout": ("query", "SELECT 1"),
    "spot guard --grace": ("spot", "guard", ".", "--", "true"),
}
OF_A_PLAN = {f"spot {name} --{option}" for name in ("plan", "simulate") for option in ("checkpoint", "notice")}
"""Read by the same function, once a plan and what endangers it are known."""
SAYS_ITS_UNIT = "spot run --seconds"


def _options_of(command: Any, path: tuple[str, ...]) -> set[str]:
    if hasattr(command, "commands"):
        return {found for name, each in command.commands.items() for found in _options_of(each, (*path, name))}
    return {
        " ".join((*path, max(each.opts, key=len)))
        for each in command.params
        if each.param_type_name == "option" and each.metavar == "TIME"
    }


def test_no_option_that_takes_a_time_is_forgotten() -> None:
    assert _options_of(typer.main.get_command(app), ()) == {*WORDS, *OF_A_PLAN, SAYS_ITS_UNIT}


@pytest.mark.parametrize("option", WORDS)
def test_a_bare_number_is_no_time(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words, name = WORDS[option], option.rsplit(maxsplit=1)[-1]
    place = words.index("--") - 1 if "--" in words else len(words)
    assert commands.run(monkeypatch, *words[:place], name, "24", *words[place:]) == 2
    assert f"{name} 24: 24 what? type 24h, 24m or 24s" in capsys.readouterr().err
