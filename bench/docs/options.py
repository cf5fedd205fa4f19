"""The reference of the command line, from the commands themselves: every command, then one table of all options.

An option has the same meaning in every command. Where commands explain it in different words, the shared meaning is
written here, and a test checks that the list is complete.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from stash.cli.main import app
from stash.ui.help import read_docstring

MEANINGS: Mapping[str, str] = {
    "--against": "Compare with this profile.",
    "--apply": "Carry out what would otherwise only be printed.",
    "--batch": "Samples per device in one pass.",
    "--budget": "Time limit for measuring; --max-dollars limits the bill.",
    "--checkpoint-every": "Time between two checkpoints.",
    "--cloud": "Cloud providers to consider.",
    "--cluster": "A file that describes the machines.",
    "--confidence": "Minimum probability of meeting the limits.",
    "--deadline": "When training must be finished.",
    "--disk": "Read rate of a machine's storage.",
    "--dry-run": "Print what would be done, without doing it.",
    "--explain": "Explain the words or the sums of the answer.",
    "--force": "Go on where Stash would refuse: different jobs, or GPUs in use.",
    "--format": "Output format.",
    "--gpu": "GPU model or variant, as the catalog names it.",
    "--gpus": "GPUs per machine.",
    "--instance": "Machine type, as the catalog names it.",
    "--instances": "A file with your own machines and prices.",
    "--json": "Print JSON instead of text.",
    "--loss": "Loss at which training is finished.",
    "--max-dollars": "Limit for the whole bill; --budget limits time.",
    "--max-price": "Limit for the price per hour.",
    "--min-gpu-memory": "Minimum memory per GPU.",
    "--network": "Network rate of one machine, in one direction.",
    "--nodes": "Number of machines.",
    "--on": "Where the job runs, or would run.",
    "--output": "File or folder to write.",
    "--policy": "Policies to use or compare, by name.",
    "--probe": "A probe of the machines, whose measured links are added.",
    "--quota": "Maximum number of machines of one type.",
    "--region": "Regions to consider.",
    "--servers": "Number of parameter servers.",
    "--start": "Time from renting a machine until it trains.",
}
"""For options that several commands explain in their own words: the meaning that all of them share."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that runs, by what is typed, ``stash spot plan``; in the order of ``--help``."""

    def below(found: Any, words: str) -> Iterator[tuple[str, Any]]:
        inner = getattr(found, "commands", {})
        if not inner or getattr(found, "invoke_without_command", False):
            yield words, found
        for name in inner:
            yield from below(inner[name], f"{words} {name}")

    yield from below(get_command(app), "stash")


def options(command: Any) -> Iterator[tuple[str, Any]]:
    """A command's options that its help shows, by their long names."""
    for each in command.params:
        if (
            each.param_type_name == "option"
            and not each.hidden
            and each.name not in ("help", "help_all")
        ):
            yield max(each.opts, key=len), each


def count_options() -> int:
    """How many options all commands have together, one that two commands share counted twice."""
    return sum(1 for _, command in commands() for _ in options(command))


def count_undocumented(root: Path) -> int:
    """How many options stand in no page that people wrote for users (decisions and the log are for developers)."""
    return len(find_undocumented(root))


def find_undocumented(root: Path) -> list[str]:
    """Each option of a command that no page names, as ``"spot plan --vcpus"``."""
    pages = [
        root / "README.md",
        *(page for page in root.glob("docs/**/*.md") if page.parent.name != "decisions"),
    ]
    written = "\n".join(page.read_text(encoding="utf-8") for page in pages if page.name != "log.md")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", written))
    return [
        f"{words.removeprefix('stash ')} {name}"
        for words, command in commands()
        for name, _ in options(command)
        if name not in named
    ]


def helps() -> dict[str, dict[str, list[str]]]:
    """Of every option what the commands say, and which say it."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for words, command in commands():
        for name, each in options(command):
            found[name][each.help].append(words)
    return found


def table() -> str:
    """All options: what each means, and which commands have it."""
    known = {name: each for _, command in commands() for name, each in options(command)}
    rows = ["| option | meaning | of |", "|---|---|---|"]
    for name, texts in sorted(helps().items()):
        shown = f"{name} {known[name].metavar or ''}".strip()
        having = sorted(words.removeprefix("stash ") for found in texts.values() for words in found)
        where = ", ".join(f"`{words}`" for words in having)
        rows.append(f"| `{shown}` | {_cell(MEANINGS.get(name, next(iter(texts))))} | {where} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """Text for a table: one line, nothing in it taken for Markdown or HTML."""
    line = re.sub(r"\s+", " ", text).strip()
    # what stands between backticks stays as it is, but for the table's sign
    parts = re.split(r"(`[^`]+`)", line)
    parts[::2] = [re.sub(r"([\\<>*_\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def prose(text: str) -> str:
    """A command's description: paragraphs, and its examples as a block."""
    summary, paragraphs, examples = read_docstring(text)
    block = ["\n".join(["```bash", *examples, "```"])] if examples else []
    return "\n\n".join([*map(_cell, (summary, *paragraphs)), *block])


def _spell_parameter(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper()
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"{names} {parameter.metavar or ''}".strip()


def _rows(parameters: list[Any]) -> str:
    rows = [
        f"| `{_spell_parameter(each)}` | {_cell(getattr(each, 'help', None) or '')} |"
        for each in parameters
    ]
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def section(words: str, command: Any) -> str:
    """One command: its name, what it does, arguments and options in the groups that ``--help`` has."""
    parts = [f"## `{words}`", prose(command.help or "")]
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    for title in dict.fromkeys(getattr(each, "rich_help_panel", None) for each in shown):
        parts += [f"**{title}**"] if title else []
        parts.append(
            _rows([each for each in shown if getattr(each, "rich_help_panel", None) == title])
        )
    return "\n\n".join(parts)


def page() -> str:
    """The whole reference."""
    return "\n\n".join([*(section(*each) for each in commands()), "## Every option", table()])
