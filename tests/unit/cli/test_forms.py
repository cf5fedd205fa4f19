"""Forms that people type: launchers without ``--``, options in the wrong place, one voice of errors, colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from stash.cli.main import app
from stash.ui.arguments import ProfileCommand, Split, split
from stash.ui.terminal import has_colours
from tests.support import commands


def every_command(command: Any, *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield before, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, *before, name)


@pytest.mark.parametrize("launcher", ["torchrun", "python", "python3", "accelerate", "deepspeed", "srun", "mpirun"])
def test_a_launcher_is_a_command_without_dashes(launcher: str) -> None:
    words = (launcher, "-n", "2", "train.py")
    assert split(["--budget", "30", *words], {"--budget": True}) == Split(("--budget", "30"), "command", words)


def test_a_script_that_is_called_like_a_launcher_is_a_script(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "composer").write_text("")
    monkeypatch.chdir(tmp_path)
    assert split(["composer"], {}).kind == "script"


@pytest.mark.parametrize("command", ["profile", "fix", "watch", "run"])
@pytest.mark.parametrize("words", [("--lr", "0.1"), ("--precision", "bf16")])
def test_an_option_of_the_script_before_it_is_told_where_it_belongs(
    command: str, words: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(monkeypatch, command, *words, "train.py") == 2
    sentence = f"an option of the script goes after the script: `stash {command} train.py {words[0]} …`"
    assert sentence in capsys.readouterr().err


def test_every_command_refuses_an_unknown_option_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, command in every_command(get_command(app)):
        if words and not hasattr(command, "commands"):
            assert commands.run(monkeypatch, *words, "--no-such-option") == 2, words
            err = capsys.readouterr().err
            lines = [line for line in err.splitlines() if not line.startswith("note: ")]
            assert len(lines) == 1, err
            assert lines[0].startswith("error: "), err
            assert "Usage" not in err
            if not isinstance(command, ProfileCommand):
                assert "--help`" in err


def test_no_change_is_no_question(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(monkeypatch, "whatif", "train.stash.json") == 2
    assert "say what, like --nodes 8" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["-V", "--version"])
def test_the_version_has_a_short_name(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.run(monkeypatch, name) == 0
    assert capsys.readouterr().out.startswith("stash ")


def test_colours_follow_the_environment() -> None:
    assert has_colours(True, {})
    assert not has_colours(False, {})
    assert has_colours(False, {"FORCE_COLOR": "1"})
    assert not has_colours(True, {"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert not has_colours(True, {"TERM": "dumb"})
