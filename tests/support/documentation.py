"""The pages of the documentation as tests read them: blocks, commands, and what a command prints."""

import contextlib
import itertools
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

import typer
from typer.testing import CliRunner

from stash.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {
    str(page.relative_to(ROOT)): page.read_text()
    for page in (ROOT / "README.md", ROOT / "examples/README.md", ROOT / "bench/RESULTS.md", *DOCS)
}
FLAGS = re.MULTILINE | re.DOTALL
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", FLAGS)
SHELL = ("|", "||", "&&", ";", ">", ">>")
INLINE = re.compile(r"`(stash [^`]+)`")


class Found(NamedTuple):
    """Something quoted in a page."""

    page: str
    text: str

    def __str__(self):
        return f"{self.page}: {self.text.splitlines()[0]}"


def blocks(*languages):
    """The fenced blocks of all pages in one of ``languages``."""
    return [
        Found(page, body)
        for page, text in PAGES.items()
        for kind, body in FENCE.findall(text)
        if kind in languages
    ]


def commands_to_copy():
    """Every ``stash`` command line shown in a block, without what the shell does before and after it."""
    found = []
    for page, body in blocks("bash", "console", "yaml"):
        for line in re.sub(r"\\\n\s*", "", body).splitlines():
            shown = re.sub(
                r"(^|\s)#.*", "", re.sub(r"\$\([^()]*\)", "WORD", line.removeprefix("$ "))
            )
            match = re.search(r"(?:^|[ /{])stash (?=[a-z])", shown)
            if match:
                lexer = shlex.shlex(shown[match.end() :], posix=True, punctuation_chars=True)
                lexer.whitespace_split = True
                words = list(itertools.takewhile(lambda word: word not in SHELL, lexer))
                found.append(Found(page, shlex.join(["stash", *words])))
    return found


def commands():
    """Those, and the ones in the text."""
    return commands_to_copy() + [
        Found(page, line)
        for page, text in PAGES.items()
        for line in INLINE.findall(FENCE.sub("", text))
    ]


def sessions():
    """Each command of the console blocks together with the output shown under it."""
    parts = [
        (page, part)
        for page, body in blocks("console")
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)
    ]
    return [Found(page, part) for page, part in parts if part.strip()]


@contextlib.contextmanager
def inside(folder):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@cache
def root_command():
    return typer.main.get_command(app)


@cache
def run(line):
    """What a command prints in the repository's root."""
    with inside(ROOT):
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, shlex.split(line)[1:])
    return (
        result.output if result.exit_code == 0 else f"exit code {result.exit_code}: {result.output}"
    )
