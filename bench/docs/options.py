"""Write the reference of the command line from the commands: one table of all options, then every command.

``python -m bench.docs.options`` (``make docs``) writes ``build/docs/options.md``. An option has one meaning wherever
it stands: where commands say it in different words, the meaning they share is said here, once, and a test holds both
against the commands.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

from bench.docs.format import line
from stash.cli.main import app

PAGE = Path(__file__).parents[2] / "build" / "docs" / "options.md"
MEANINGS: Mapping[str, str] = {
    "--batch": "Samples of one device in one pass.",
    "--budget": "Measuring takes so long at most; money is --max-dollars.",
    "--cloud": "Whose machines.",
    "--confidence": "How probable it has to be that the limits are kept.",
    "--cpus": "Processors of one machine.",
    "--data": "Where the data lie.",
    "--deadline": "By when it has to be done.",
    "--disk": "What a machine's storage reads.",
    "--dry-run": "Print what would be done, and stop.",
    "--dtype": "In which numbers is trained.",
    "--format": "How what is written is encoded.",
    "--gpu": "A model or variant of the catalog.",
    "--gpus": "GPUs of one machine.",
    "--instance": "A machine's type, as the catalog calls it.",
    "--instances": "Your own machines and prices.",
    "--json": "Print JSON for other programs, instead of text.",
    "--limit": "How many rows are shown.",
    "--loss": "What training has to reach.",
    "--max-dollars": "All of it may cost so much at most; time is --budget.",
    "--max-price": "An hour may cost so much at most.",
    "--min-gpu-memory": "Memory of one GPU at least.",
    "--model": "By which model a fleet's speed is computed.",
    "--network": "What one machine sends, in one direction.",
    "--nodes": "Machines.",
    "--on": "Where it is run.",
    "--output": "Where what was found is written.",
    "--probe": "What `stash probe` measured of the machines.",
    "--quota": "So many machines of a type at most.",
    "--region": "Where machines are rented.",
    "--seed": "Of what is drawn: the same seed gives the same again.",
    "--servers": "Parameter servers.",
    "--staleness": "Updates that a worker may be ahead of the slowest.",
    "--start": "What passes until rented machines train.",
    "--time-scale": "How many times slower than it was is emulated.",
    "--trace": "Machines that could be had, tick by tick.",
}
"""Of options that several commands explain in words of their own."""


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
        if each.param_type_name == "option" and not each.hidden and each.name != "help":
            yield max(each.opts, key=len), each


def helps() -> dict[str, dict[str, list[str]]]:
    """Of every option what the commands say, and which say it."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for words, command in commands():
        for name, each in options(command):
            found[name][each.help].append(words)
    return found


def _table() -> str:
    known = {name: each for _, command in commands() for name, each in options(command)}
    rows = ["| option | meaning | of |", "|---|---|---|"]
    for name, texts in sorted(helps().items()):
        shown = f"{name} {known[name].metavar or ''}".strip()
        where = ", ".join(f"`{words.removeprefix('stash ')}`" for found in texts.values() for words in found)
        rows.append(f"| `{line(shown)}` | {line(MEANINGS.get(name, next(iter(texts))))} | {where} |")
    return "\n".join(rows)


def _section(words: str, command: Any) -> str:
    """A command with its words and its options, as its help has them."""
    parts = [f"## {words}", "", inspect.cleandoc(command.help or "").replace("[bold]", "").replace("[/bold]", ""), ""]
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    rows = [
        f"| `{line(' '.join([*(each.opts if each.param_type_name == 'option' else ()), each.metavar or '']))}` "
        f"| {line(each.help or '')} |"
        for each in shown
    ]
    return "\n".join([*parts, "| | |", "|---|---|", *rows, ""] if rows else parts)


def page() -> str:
    """The whole reference."""
    opening = (
        "# Every option of every command\n\nMade from the commands by `make docs`. An option means the same in all "
        "commands that have it.\n\n"
    )
    return f"{opening}{_table()}\n\n" + "\n".join(_section(*each) for each in commands())


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    print(f"Wrote {PAGE} ({len(page().split())} words).")


if __name__ == "__main__":
    sys.exit(main())
