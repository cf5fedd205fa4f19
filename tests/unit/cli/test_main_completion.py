"""Completion: what a shell is answered, the scripts in the shells that are here, and where they are put."""

import os
import shutil
import subprocess
import sys

import pytest
from commands import run

from stash.cli.main import COMMANDS


def asked(monkeypatch, capsys, *words):
    """What may stand in the place of the last word."""
    monkeypatch.setenv("_STASH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(("stash", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert run(monkeypatch) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out.split()


def script(monkeypatch, capsys, shell):
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, f"/bin/{shell}"))
    assert run(monkeypatch, "--show-completion") == 0
    return capsys.readouterr().out


def shell_says(shell, words, folder):
    """What the shell prints, with this ``stash`` on its path."""
    program = folder / "stash"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stash "$@"\n')
    program.chmod(0o755)
    home = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(
        [shell, "-c", words], cwd=folder, env=home, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed(monkeypatch, capsys):
    assert set(asked(monkeypatch, capsys, "")) == set(COMMANDS)
    assert asked(monkeypatch, capsys, "re") == ["report", "recommend", "restore"]
    assert asked(monkeypatch, capsys, "lab", "d") == ["dataset"]


def test_options_are_completed(monkeypatch, capsys):
    assert asked(monkeypatch, capsys, "check", "--ma") == ["--max", "--markdown"]
    assert asked(monkeypatch, capsys, "profile", "--bu") == ["--budget"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script(monkeypatch, capsys, tmp_path):
    (tmp_path / "script").write_text(script(monkeypatch, capsys, "bash"))
    fills = ". ./script; COMP_WORDS=({words}); COMP_CWORD={at}; _stash_completion stash; echo ${{COMPREPLY[@]}}"
    assert shell_says("bash", fills.format(words="stash re", at=1), tmp_path) == [
        "report",
        "recommend",
        "restore",
    ]
    assert shell_says("bash", fills.format(words="stash lab testbed d", at=3), tmp_path) == [
        "doctor"
    ]
    assert shell_says("bash", ". ./script; complete -p stash", tmp_path)[-1] == "stash"


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.slow
def test_fish_completes_with_the_script(monkeypatch, capsys, tmp_path):
    (tmp_path / "script").write_text(script(monkeypatch, capsys, "fish"))
    asks = 'source ./script; for each in (complete --do-complete "stash {words}"); string split -f1 \\t -- $each; end'
    assert set(shell_says("fish", asks.format(words="re"), tmp_path)) == {
        "report",
        "recommend",
        "restore",
    }
    assert shell_says("fish", asks.format(words="check --max"), tmp_path) == ["--max"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@pytest.mark.slow
def test_zsh_completes_at_the_tab_key(monkeypatch, capsys, tmp_path):
    """Its completion works in a line that is typed only: zsh's own pseudo-terminal types it, as its own tests do."""
    (tmp_path / "script").write_text(script(monkeypatch, capsys, "zsh"))
    (tmp_path / ".zshrc").write_text(
        "PS1=; autoload -Uz compinit; compinit -u; source ./script; print ready\n"
    )
    types = (
        "zmodload zsh/zpty; zpty -b shell zsh -i; zpty -r -m shell seen '*ready*'; "
        "zpty -w -n shell $'stash rec\\t--ou\\t;over'; zpty -r -m shell seen '*over*'; print -r -- $seen"
    )
    typed = " ".join(shell_says("zsh", types, tmp_path))
    assert "stash recommend" in typed
    assert "--output" in typed


def test_the_script_is_put_where_the_shell_finds_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert run(monkeypatch, "--install-completion") == 0
    place = tmp_path / ".bash_completions" / "stash.sh"
    assert f"bash completion installed in {place}" in capsys.readouterr().out
    assert "complete -o default -F _stash_completion stash" in place.read_text()
    assert f"source '{place}'" in (tmp_path / ".bashrc").read_text()
