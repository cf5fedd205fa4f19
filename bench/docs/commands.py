"""The reference of the command line, from the commands themselves: what ``--help`` says, as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from stash.cli.main import app

_MARKUP = re.compile(r"\[/?(?:bold|italic|dim|b|i)\]")


def _cell(text: str) -> str:
    """Text for a table: one line, nothing in it taken for Markdown or HTML."""
    line = re.sub(r"\s+", " ", _MARKUP.sub("", text)).strip()
    parts = re.split(r"(`[^`]+`)", line)  # what stands between backticks stays as it is, but for the table's sign
    parts[::2] = [re.sub(r"([\\<>*_\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def prose(text: str) -> str:
    """A command's description: paragraphs, and its examples as a block."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(_MARKUP.sub("", text).replace("\b", "")).strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if any(line.startswith("stash ") for line in lines):
            parts.append("\n".join(["```bash", *lines, "```"]))
        elif lines not in (["Examples"], ["Examples:"]):
            parts.append(_cell(paragraph))
    return "\n\n".join(parts).replace("\n```\n\n```bash\n", "\n")


def _spelled(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper()
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"{names} {parameter.metavar or ''}".strip()


def _table(parameters: list[Any]) -> str:
    rows = [f"| `{_spelled(each)}` | {_cell(getattr(each, 'help', None) or '')} |" for each in parameters]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def section(command: Any, words: tuple[str, ...]) -> str:
    """One command: its name, what it does, arguments and options in the groups that ``--help`` has."""
    parts = [f"{'#' * len(words)} `{' '.join(words)}`", prose(command.help or "")]
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    for title in dict.fromkeys(getattr(each, "rich_help_panel", None) for each in shown):
        parts += [f"**{title}**"] if title else []
        parts.append(_table([each for each in shown if getattr(each, "rich_help_panel", None) == title]))
    return "\n\n".join(parts)


def every_command(command: Any, words: tuple[str, ...] = ("stash",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it, hidden ones left out."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from every_command(inner, (*words, name))


def page() -> str:
    """The whole reference."""
    return "\n\n".join(section(command, words) for words, command in list(every_command(root()))[1:])


def root() -> Any:
    """The command that all others belong to."""
    return typer.main.get_command(app)
