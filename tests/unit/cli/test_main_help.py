"""``--help`` of every command: one plain layout that fits 80 columns, in short sentences, without leaked types."""

import re

import pytest
from typer.main import get_command

from stash.cli.main import COMMANDS, app
from stash.ui.help import read_docstring
from tests.support import commands


def every_command(command, *before):
    yield before, command
    for name in getattr(command, "commands", {}):
        yield from every_command(command.commands[name], *before, name)


EVERY = [
    pytest.param(words, command, id=" ".join(words))
    for words, command in every_command(get_command(app))
]


@pytest.fixture(params=[80, 120])
def shown(
    request,
    monkeypatch,
    capsys,
):
    def run(words):
        monkeypatch.setenv("COLUMNS", str(request.param))
        assert commands.run(monkeypatch, *words, "--help") == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= request.param
        return text

    return run


def test_every_command_of_a_user_has_examples():
    for name, listed in COMMANDS.items():
        loaded = listed.load(name)
        if not hasattr(loaded, "commands") and name != "mcp":
            assert read_docstring(loaded.help)[2], name


@pytest.mark.parametrize(("words", "command"), EVERY)
def test_the_short_help_shows_what_is_common(words, command, shown):
    """``--help-all`` shows all, and exists only where there is more."""
    declared = {each.name for each in command.params if each.param_type_name == "option"} - {
        "help_all"
    }
    hidden = command.uncommon
    listed = re.findall(r"^  (?:-\w, )?(--[a-z][a-z-]*)", shown(words), re.MULTILINE)
    assert len(set(listed) - {"--help", "--help-all"}) <= 15
    assert ("--help-all" in listed) is bool(hidden)
    assert hidden <= declared | set(getattr(command, "commands", ()))


def test_the_first_help_has_twenty_commands(shown):
    text = shown(())
    listed = [name for name in COMMANDS if re.search(rf"^  {name}  ", text, re.MULTILINE)]
    assert len(listed) <= 20
    assert f"{len(COMMANDS) - len(listed)} more commands" in text


def test_help_all_shows_every_option_and_command(monkeypatch, capsys):
    assert commands.run(monkeypatch, "--help-all") == 0
    assert "\n  restore  " in capsys.readouterr().out
    assert commands.run(monkeypatch, "recommend", "--help-all") == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--late-costs", "--pareto", "--quota"))
    assert "more options" not in text
