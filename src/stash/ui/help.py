"""``--help`` of every command in one plain layout: what it does, usage, more about it, options by panel, examples.

A docstring is written for it: the first paragraph is the summary, a paragraph that begins with ``Examples:`` holds
commands, and indented lines stay as they are. Only arranges what commands declare.
"""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

NARROWEST = 60
WIDEST = 100
_MAX_TERM = 28
"""Columns of an option's or a command's name; the text of a longer one begins on the next line."""
_EXAMPLES = "Examples:"


def help_text(command: Any, context: Any, everything: bool = False) -> str:
    """The help of a command, in as many columns as the terminal has; ``everything``: what is not common, too."""
    width = max(NARROWEST, min(shutil.get_terminal_size().columns, WIDEST))
    summary, paragraphs, examples = read_docstring(command.help or "")
    usage = f"Usage: {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    hidden = frozenset[str]() if everything else command.uncommon
    indent = " " * len(f"Usage: {context.command_path} ")
    blocks = [
        _wrap_text(summary, width),
        _wrap_text(usage, width, indent),
        *(_paragraph(each, width) for each in paragraphs),
        *(_section(title, rows, width) for title, rows in _tables(command, context, hidden)),
    ]
    if hidden:
        what = "commands" if hasattr(command, "commands") else "options"
        blocks.append(
            _wrap_text(
                f"`{context.command_path} --help-all` shows {len(hidden)} more {what}.", width
            )
        )
    if examples:
        blocks.append("\n".join([_EXAMPLES, *(_example(line, width) for line in examples)]))
    return "\n\n".join(filter(None, blocks))


def read_docstring(text: str) -> tuple[str, list[str], list[str]]:
    """(the summary, the paragraphs after it, the examples)."""
    summary, *rest = inspect.cleandoc(text).split("\n\n")
    examples = [
        line.strip()
        for each in rest
        if each.startswith(_EXAMPLES)
        for line in each.splitlines()[1:]
    ]
    return (
        " ".join(summary.split()),
        [each for each in rest if not each.startswith(_EXAMPLES)],
        examples,
    )


def usage_pieces(parameters: Iterable[Any]) -> list[str]:
    """``[OPTIONS]`` and the arguments by the words that they were declared with."""
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    return [
        "[OPTIONS]",
        *(each.metavar if each.required else f"[{each.metavar}]" for each in arguments),
    ]


def _tables(
    command: Any, context: Any, without: Collection[str]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Arguments, options by panel, commands by panel: a title, and rows of a term and its text."""
    shown = [
        each
        for each in command.get_params(context)
        if not getattr(each, "hidden", False) and each.name not in without
    ]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    yield "Arguments", [(each.metavar, each.help or "") for each in arguments]
    for panel in dict.fromkeys(
        [None, *(each.rich_help_panel for each in options if hasattr(each, "rich_help_panel"))]
    ):
        rows = [each for each in options if getattr(each, "rich_help_panel", None) == panel]
        yield (
            panel or "Options",
            [(_spell_option(each), _help_text(each, context)) for each in rows],
        )
    commands = [
        command.get_command(context, name)
        for name in getattr(command, "commands", ())
        if name not in without
    ]
    for title in dict.fromkeys(each.rich_help_panel or "Commands" for each in commands):
        rows = [each for each in commands if (each.rich_help_panel or "Commands") == title]
        yield title, [(each.name, read_docstring(each.help or "")[0]) for each in rows]


def _spell_option(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    return f"{names} {option.metavar or ''}".strip()


def _help_text(option: Any, context: Any) -> str:
    default = f" (default {option.default})" if isinstance(option.default, str) else ""
    of_project = context.lookup_default(option.name)
    if of_project is not None:
        texts = ", ".join(of_project) if isinstance(of_project, list) else of_project
        default = f" (default {texts}, by {context.default_map.file})"
    text = (option.help or "").removesuffix(".") if default else option.help or ""
    return f"{text}{default}." if default else text


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    """A title and two columns below it; empty without rows."""
    if not rows:
        return ""
    column = min(max(len(term) for term, _ in rows), _MAX_TERM) + 4
    lines = [f"{title}:"]
    for term, text in rows:
        first = f"  {term}".ljust(column)
        if len(first) > column:
            lines.append(first)
            first = " " * column
        lines.append(
            textwrap.fill(text, width, initial_indent=first, subsequent_indent=" " * column)
        )
    return "\n".join(lines)


def _paragraph(text: str, width: int) -> str:
    """Wrapped; a list, whose lines are indented, line by line."""
    if "\n " not in f"\n{text}":
        return _wrap_text(text, width)
    return "\n".join(
        textwrap.fill(line.strip(), width, initial_indent="  ", subsequent_indent="    ")
        for line in text.splitlines()
    )


def _wrap_text(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), width, subsequent_indent=indent, break_on_hyphens=False
    )


def _example(line: str, width: int) -> str:
    """A command to copy, continued on the next line where it does not fit."""
    parts = textwrap.wrap(line, width - 6, break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(
        f"{'  ' if number == 0 else '      '}{part}" for number, part in enumerate(parts)
    )
