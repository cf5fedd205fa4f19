"""Forms that people type: launchers without ``--``, options in the wrong place, one voice of errors, colours."""

from pathlib import Path

import pytest
from typer.main import get_command

from stash.cli.main import app
from stash.ui.arguments import split_command
from stash.ui.commands import OneCommand
from stash.ui.terminal import progress_console
from tests.support import commands

GOLDEN = Path(__file__).parents[2] / "golden"
PROFILE = str(GOLDEN / "two-nodes.stash.json")
FAST, SLOW = (
    str(GOLDEN.parents[1] / f"bench/predict/data/testbed/2-x-{rate}mbit-4-MiB.stash.json")
    for rate in (1600, 100)
)


def every_command(command, *before):
    yield before, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every_command(inner, *before, name)


def names_of(command):
    return {name for each in command.params for name in each.opts}


def test_a_script_that_is_called_like_a_launcher_is_a_script(tmp_path, monkeypatch):
    (tmp_path / "composer").write_text("")
    monkeypatch.chdir(tmp_path)
    assert split_command(["composer"], {}).kind == "script"


@pytest.mark.parametrize("command", ["profile", "fix", "watch", "run"])
@pytest.mark.parametrize("launcher", ["", "torchrun --nproc-per-node 2 "])
def test_an_option_of_stash_after_the_script_is_told_where_to_put_it(
    command,
    launcher,
    tmp_path,
    monkeypatch,
    capsys,
):
    """A launcher's own option, called as one of Stash, is left to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit")
    option = "--nnodes" if command == "run" else "-o"
    with monkeypatch.context() as patched:
        patched.setattr(
            OneCommand, "parse_args", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        assert commands.run(patched, command, *launcher.split(), "train.py", option, "3") == 130
    start = f"{launcher.split(maxsplit=1)[0]} …" if launcher else "train.py"
    sentence = f"`{option}` comes after train.py and is passed to the script"
    assert (
        f"{sentence}; if it is meant for Stash, type `stash {command} {option} … {start}`\n"
        in capsys.readouterr().err
    )


ANSWERS = (
    ("show", PROFILE),
    ("show", "--explain", PROFILE),
    ("list", str(GOLDEN)),
    ("compare", FAST, SLOW),
    ("catalog", "--cloud", "aws"),
    ("show", str(GOLDEN / "schema-1.fix.json")),
)


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_pages_are_coloured_only_where_colours_are_wanted(words, monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, coloured in (
        ("FORCE_COLOR", True),
        ("NO_COLOR", False),
    ):  # the second beside the first
        monkeypatch.setenv(name, "1")
        assert commands.run(monkeypatch, *words) == 0
        assert ("\x1b[" in capsys.readouterr().out) is coloured
        assert commands.run(monkeypatch, "--color", "never" if coloured else "always", *words) == 0
        assert ("\x1b[" in capsys.readouterr().out) is not coloured


def test_a_colour_that_is_none_is_refused(monkeypatch, capsys):
    assert commands.run(monkeypatch, "--color", "odd", "lab", "zoo") == 2
    assert capsys.readouterr().err == "error: --color odd: use auto, always or never\n"


def test_progress_follows_the_terminal_and_its_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not progress_console().is_terminal  # nothing is redrawn in a pipe
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert progress_console().is_terminal
    assert not progress_console().no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert progress_console().is_terminal
    assert progress_console().no_color


def test_quiet_is_one_option_of_every_command_with_progress():
    """``-q`` has one meaning; a command that measures has it."""
    having = {
        words: command
        for words, command in every_command(get_command(app))
        if "-q" in names_of(command)
    }
    assert {" ".join(words) for words in having} == {
        "profile",
        "fix",
        "probe",
        "watch",
        "query",
        "store verify",
        "catalog refresh",
        "characterize",
        "lab dataset make",
        "spot learn",
    }
    assert (
        len(
            {
                each.help
                for command in having.values()
                for each in command.params
                if each.name == "quiet"
            }
        )
        == 1
    )


@pytest.mark.parametrize("quiet", [False, True])
def test_quiet_prints_the_result_alone(quiet, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def probe(*_, say, **__):
        say("copies")

    monkeypatch.setattr("stash.measure.launcher.probe_launch.run_probe", probe)
    assert commands.run(monkeypatch, "probe", *(["-q"] if quiet else [])) == 0
    err = capsys.readouterr().err
    assert ("copying in memory" in err) is not quiet


@pytest.mark.parametrize(
    "words",
    [
        words
        for words, command in every_command(get_command(app))
        if getattr(command, "no_args_is_help", False)
    ],
    ids=" ".join,
)
def test_a_group_without_a_command_shows_its_help(words, monkeypatch, capsys):
    assert commands.run(monkeypatch, *words, "--help") == 0
    help_text = capsys.readouterr().out
    assert commands.run(monkeypatch, *words) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.strip()) == ("", help_text.strip())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train.py",), "type `stash profile train.py` to see where its time goes"),
        (("old.stash.json",), "type `stash show old.stash.json` to read it"),
        (("show",), "type `stash show train.stash.json`"),
        (("report",), "type `stash report train.stash.json`"),
        (("compare",), "type `stash compare before.stash.json after.stash.json`"),
        (("check",), "type `stash check train.stash.json --max prep=10%`"),
        (("run", "train.py"), "type `stash run --with train.fix.json train.py`"),
    ],
)
def test_what_is_forgotten_is_answered_with_the_command_to_type(words, says, monkeypatch, capsys):
    assert commands.run(monkeypatch, *words) == 2
    assert says in capsys.readouterr().err
