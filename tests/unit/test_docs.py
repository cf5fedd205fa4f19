"""The documentation keeps its promises: commands run, options exist, examples work, quoted sentences are said.

``python tests/unit/test_docs.py [PROFILE]`` writes the outputs shown under commands in the pages again, and the
README's picture from that profile (look at the diff).
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

import stash
from stash.cli.main import app
from stash.core.ladder import NAMES, STALLS
from stash.ui.arguments import split, value_takers

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(stash [^`]+)`")
RUNNABLE = re.compile(r"^stash( \w+)* --help$|^stash zoo\b|^stash show tests/golden/\S+( --json| --explain)?$")
PICTURE = re.compile(r"(<!-- demo:begin -->\n```text\n)(.*?)(```\n<!-- demo:end -->)", re.DOTALL)
ANYTHING = "…"
"""A line of this in a console block stands for any lines of output."""


class Found(NamedTuple):
    """Something quoted in a page."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0]}"


def blocks(*languages: str) -> list[Found]:
    """The fenced blocks of all pages in one of ``languages``."""
    return [
        Found(str(page.relative_to(ROOT)), body)
        for page in PAGES
        for language, body in FENCE.findall(page.read_text())
        if language in languages
    ]


def commands() -> list[Found]:
    """Every ``stash`` command line shown in a block or in the text, without what stands before ``stash``."""
    found = []
    for page, body in blocks("bash", "console"):
        for line in body.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if "stash" in line else []
            if "stash" in words:
                found.append(Found(page, shlex.join(words[words.index("stash") :])))
    for page in PAGES:
        prose = FENCE.sub("", page.read_text())
        found += [Found(str(page.relative_to(ROOT)), text) for text in INLINE.findall(prose)]
    return found


def sessions() -> list[Found]:
    """Each command of the console blocks together with the output shown under it."""
    return [
        Found(page, session)
        for page, body in blocks("console")
        for session in re.split(r"^\$ ", body, flags=re.MULTILINE)
        if session.strip()
    ]


@contextlib.contextmanager
def inside_root() -> Iterator[None]:
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        yield
    finally:
        os.chdir(before)


@cache
def root_command() -> Any:
    return typer.main.get_command(app)


def run(line: str) -> str:
    with inside_root():
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    return result.output


def rewrite(profile: str | None = None) -> None:
    """Put today's output under commands of console blocks that show all of it, and ``profile``'s into the README."""
    for page in PAGES:
        text = page.read_text()
        for body in [body for language, body in FENCE.findall(text) if language == "console"]:
            lines = [line for line in body.splitlines() if line.startswith("$ ")]
            if not re.search(rf"^{ANYTHING}$", body, re.MULTILINE):
                text = text.replace(body, "".join(f"{line}\n{run(line[2:])}" for line in lines))
        page.write_text(text)
    if profile is not None:
        text, report = PAGES[0].read_text(), run(f"stash show {Path(profile).resolve()}")
        PAGES[0].write_text(PICTURE.sub(lambda match: f"{match[1]}{report}{match[3]}", text))


def test_pages_show_commands_and_examples_at_all():
    assert len(commands()) > 40
    assert sessions()
    assert blocks("python")


@pytest.mark.parametrize("line", sorted({c.text for c in commands() if RUNNABLE.match(c.text)}))
def test_commands_that_only_print_run_as_shown(line):
    assert run(line)


@pytest.mark.parametrize("session", sessions(), ids=str)
def test_output_shown_is_the_output(session):
    line, _, shown = session.text.partition("\n")
    assert RUNNABLE.match(line), f"{line!r} cannot be run by a test: show it in a bash block"
    parts = re.split(rf"^{ANYTHING}$\n?", shown, flags=re.MULTILINE)
    pattern = "(?s:.*)".join(re.escape(part.strip("\n")) for part in parts)
    assert re.fullmatch(rf"\n*{pattern}\n*", run(line)), "python tests/unit/test_docs.py writes it again"


def options_used(line: str) -> tuple[Any, list[str]]:
    """The command a line calls, and the options it gives to Stash itself."""
    words = line.split() if "'" in line else shlex.split(line)  # prose has apostrophes and placeholders
    command, rest = root_command(), words[1:]
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"stash has no command {rest[0]!r}"
        command, rest = command.commands[rest[0]], rest[1:]
    if command.name == "profile":
        rest = split(rest, value_takers(command.params)).own
    for border in ("--", "--sync"):
        if border in rest:
            rest = rest[: rest.index(border)]  # what follows is another program's
    return command, [word.partition("=")[0] for word in rest if word.startswith("-")]


@pytest.mark.parametrize("shown", commands(), ids=str)
def test_options_shown_exist(shown):
    command, used = options_used(shown.text)
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"-h", "--help"}
    assert set(used) <= known, f"{shown}: no option {set(used) - known}"


def test_every_option_of_profile_is_documented():
    text = "\n".join(page.read_text() for page in PAGES)
    names = {max(p.opts, key=len) for p in root_command().commands["profile"].params}
    missing = {name for name in names if not re.search(rf"{name}\b", text)}
    assert not missing


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_examples_run(block):
    with inside_root(), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block.text, block.page, "exec"), {"__name__": "__example__"})


@pytest.mark.parametrize("block", blocks("py"), ids=str)
def test_python_examples_that_need_a_job_are_at_least_python(block):
    ast.parse(block.text)


@pytest.mark.parametrize("name", [*NAMES, *STALLS])
def test_the_method_explains_every_rung_and_stall(name):
    assert re.search(rf"[`*]{name}[`*]", (ROOT / "docs/method.md").read_text())


def test_every_decision_is_on_the_map():
    index = (ROOT / "docs/index.md").read_text()
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents]
    assert [page for page in pages if page != "index.md" and f"({page})" not in index] == []


def test_readme_opens_with_a_breakdown_and_stays_short():
    text = (ROOT / "README.md").read_text()
    picture = PICTURE.search(text)
    assert picture is not None
    assert re.search(r"^    step  +[\d.,]+ (s|ms|us) \+/- [\d.,]+ +100\.0%$", picture[2], re.MULTILINE)
    assert all(len(line) <= 80 for line in picture[2].splitlines())
    assert len(text.replace(picture[2], "").splitlines()) <= 150


def test_links_of_the_readme_work_on_another_page_that_shows_it():
    text = FENCE.sub("", (ROOT / "README.md").read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_every_example_is_explained():
    shown = (ROOT / "examples/README.md").read_text()
    assert [path.name for path in (ROOT / "examples").glob("*.py") if f"({path.name})" not in shown] == []


def test_versions_agree():
    version = re.escape(stash.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert re.search(rf"^## \[{version}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@cache
def sentences() -> str:
    """All text in the source, without backticks; a gap where a value is filled in."""
    found = []
    for path in (ROOT / "src/stash").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "\0" for v in node.values]
                found.append("".join(map(str, parts)))
    return "\n".join(found).replace("`", "")


def quoted_sentences() -> list[str]:
    """What the first columns of the troubleshooting tables quote."""
    rows = re.findall(r"^\| (`.*?) \| ", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    return [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("quote", quoted_sentences())
def test_sentences_explained_are_sentences_said(quote):
    pieces = re.split(rf"^--[a-z-]+|{ANYTHING}|'?\b[A-Z]+\b'?|\d+", quote)  # what stands for a value
    longest = max((piece.strip(" ±%'") for piece in pieces), key=len)
    assert len(longest) > 4
    assert longest in sentences()


if __name__ == "__main__":
    rewrite(*sys.argv[1:2])
