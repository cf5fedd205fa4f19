"""``stash --install-completion`` and ``--show-completion``: a shell's Tab key asks Stash what may follow.

What the scripts are is typer's business; which shell it is, and what to print where none is found, is decided here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from stash.core.errors import UserError
from stash.core.printable import printable_line

ASKED = "_STASH_COMPLETE"
"""The variable that a shell's script sets: this call asks for words, and runs no command."""
_SHELLS = ("bash", "zsh", "fish")


def prepare() -> None:
    """Let typer answer if a shell asks; else nothing, for its module takes time to load."""
    if ASKED in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def show(context: Any, wanted: bool) -> None:
    """Print the script for the shell that this was typed in; raises UserError."""
    if not wanted or context.resilient_parsing:
        return
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(
        get_completion_script(
            prog_name="stash", complete_var=ASKED, shell=_shell("--show-completion")
        )
    )
    raise typer.Exit


def install(context: Any, wanted: bool) -> None:
    """Put the script where that shell finds it; raises UserError."""
    if not wanted or context.resilient_parsing:
        return
    from typer.completion import install as installed  # type: ignore[attr-defined]

    try:
        shell, place = installed(
            _shell("--install-completion"), prog_name="stash", complete_var=ASKED
        )
    except OSError as error:
        raise UserError(
            f"--install-completion: {error.filename}: {error.strerror or error}; --show-completion prints the script"
        ) from None
    print(printable_line(f"Completion for {shell} is in {place}; the next terminal has it."))
    raise typer.Exit


def _shell(option: str) -> str:
    """The shell whose child this is, else the user's own."""
    import shellingham

    try:
        name = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        name = Path(os.environ.get("SHELL", "")).name
    if name not in _SHELLS:
        raise UserError(
            f"{option}: the shell is {name or 'unknown'}; type it in one of {', '.join(_SHELLS)}"
        )
    return str(name)
