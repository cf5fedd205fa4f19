"""The documentation keeps its promises: commands parse, options exist, examples work, quoted sentences are printed.

Each test looks at every page and reports all that is wrong together. This file run by itself
(``PYTHONPATH=tests/support:. python tests/unit/test_docs.py``) writes the outputs shown under commands again; look at
the diff.
"""

import ast
import contextlib
import io
import re
import shlex
import shutil
from functools import cache

from documentation import (
    DOCS,
    FENCE,
    FLAGS,
    PAGES,
    ROOT,
    blocks,
    commands,
    inside,
    root_command,
    run,
    sessions,
)
from forecast_profiles import gpu_job

import stash
from bench.docs import format as formats
from bench.docs import options as reference
from bench.docs import pictures, site
from stash.core.artefact import load
from stash.core.ladder import NAMES, STALLS
from stash.ui.arguments import find_strays, split_command, value_takers

RUNNABLE = re.compile(
    r"^stash( \w+)* --help$|^stash lab zoo\b|^stash show docs/(profiles|pictures)/\S+( --json| --explain)?$"
)
ANYTHING = "…"
"""A line of this in a console block stands for any lines of output."""
MOST_PAGES, MOST_WORDS, MOST_WORDS_ON_SITE, MOST_WORDS_OF_README = 50, 36_500, 30_000, 600
"""What is longer is read by nobody. All words are those of docs/ and the README; the site leaves decisions out."""
GUIDE_WORDS = range(300, 801)
"""Of a guide: one task, tables and commands included."""


def rewrite():
    """Put today's output under commands of console blocks that show all of it."""
    for name, text in PAGES.items():
        written = text
        for body in [body for language, body in FENCE.findall(text) if language == "console"]:
            lines = [line for line in body.splitlines() if line.startswith("$ ")]
            if not re.search(rf"^{ANYTHING}$", body, re.MULTILINE):
                written = written.replace(
                    body, "".join(f"{line}\n{run(line[2:])}" for line in lines)
                )
        (ROOT / name).write_text(written)


def test_pages_show_commands_and_examples_at_all():
    assert len(commands()) > 40
    assert sessions()
    assert blocks("python")


def test_commands_that_only_print_run_as_shown():
    shown = sorted({command.text for command in commands() if RUNNABLE.match(command.text)})
    assert [line for line in shown if run(line).startswith("exit code") or not run(line)] == []


def test_pages_for_users_need_no_file_of_the_tests():
    """What a reader is to type or to load is in the package, the examples or the docs."""
    for name, text in PAGES.items():
        if name != "CONTRIBUTING.md" and "decisions" not in name:
            assert [
                body for _, body in FENCE.findall(text) if re.search(r"\btests[/.]", body)
            ] == [], name


def test_profiles_of_the_pages_are_those_that_tests_know():
    folder = ROOT / "docs" / "profiles"
    assert (folder / "resnet18.stash.json").read_text() == (
        ROOT / "tests/golden/one-node.stash.json"
    ).read_text()
    known = gpu_job()
    assert (
        load(folder / "resnet50.stash.json").model_copy(update={"created": known.created}) == known
    )


def test_output_shown_is_the_output():
    wrong = []
    for session in sessions():
        line, _, shown = session.text.partition("\n")
        parts = re.split(rf"^{ANYTHING}$\n?", shown, flags=re.MULTILINE)
        pattern = "(?s:.*)".join(re.escape(part.strip("\n")) for part in parts)
        if not RUNNABLE.match(line):
            wrong.append(f"{session}: cannot be run by a test; show it in a bash block")
        elif not re.fullmatch(rf"\n*{pattern}\n*", run(line)):
            wrong.append(
                f"{session}: prints something else; tests/unit/test_docs.py, run by itself, writes it again"
            )
    assert wrong == []


def not_understood(line):
    """What is wrong with a command as it is shown: no such command, or options that it does not have."""
    # prose has apostrophes and placeholders
    words = line.split() if "'" in line else shlex.split(line)
    command, rest = root_command(), words[1:]
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return f"no command {rest[0]!r}"
        command, rest = command.commands[rest[0]], rest[1:]
    if command.name in ("profile", "watch", "fix", "run"):
        found = split_command(rest, value_takers(command.params))
        if late := find_strays(found, value_takers(command.params)):
            return f"{', '.join(late)} stands after the job's name"
        rest = found.own
    for border in ("--", "--sync"):
        if border in rest:
            rest = rest[: rest.index(border)]  # what follows is another program's
    used = {word.partition("=")[0] for word in rest if word.startswith("-")}
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {
        "-h",
        "--help",
    }
    return f"no option {', '.join(sorted(used - known))}" if used - known else ""


def test_commands_and_options_shown_exist():
    wrong = [(str(shown), not_understood(shown.text)) for shown in commands()]
    assert [f"{shown}: {why}" for shown, why in wrong if why] == []


def test_every_option_of_profile_is_documented():
    text = "\n".join(PAGES.values())
    names = {
        max(p.opts, key=len) for p in root_command().commands["profile"].params if not p.hidden
    }
    assert {name for name in names if not re.search(rf"{name}\b", text)} == set()


def test_python_examples_run():
    failed = []
    has_ip = shutil.which("ip") is not None
    for block in blocks("python"):
        if "lab.testbed" in block.text and not has_ip:  # which refuses to start without
            continue
        try:
            with inside(ROOT), contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.text, block.page, "exec"), {"__name__": "__example__"})
        except Exception as error:
            failed.append(f"{block}: {error!r}")
    assert failed == []


def test_python_examples_that_need_a_job_are_at_least_python():
    for block in blocks("py"):
        ast.parse(block.text, filename=block.page)


def test_the_method_explains_every_rung_and_stall():
    text = PAGES["docs/method.md"]
    assert [name for name in (*NAMES, *STALLS) if not re.search(rf"[`*]{name}[`*]", text)] == []


def test_every_page_is_on_the_map_and_on_the_site_or_left_out_of_it():
    names = [page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")]
    assert [
        name for name in names if name != "index.md" and f"({name})" not in PAGES["docs/index.md"]
    ] == []
    configuration = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"^ *- [^:]+: (\S+\.md)$", configuration, re.MULTILINE)
    assert sorted(listed) == sorted(
        name for name in names if not f"docs/{name}".startswith(site.OFF_SITE)
    )
    left_out = configuration.partition("exclude_docs: |\n")[2].partition("\n\n")[0].split()
    assert tuple(f"docs/{name}" for name in left_out) == site.OFF_SITE


def test_guides_are_one_task_each():
    sizes = {
        page: len(text.split()) for page, text in PAGES.items() if page.startswith("docs/how-to/")
    }
    assert {page: size for page, size in sizes.items() if size not in GUIDE_WORDS} == {}


def test_guides_that_a_picture_explains_have_one():
    shown = (
        "own-script",
        "make-it-faster",
        "watch",
        "compare",
        "what-if",
        "large-models",
        "share-a-report",
    )
    pages = ["docs/tutorial.md", "docs/index.md", *(f"docs/how-to/{name}.md" for name in shown)]
    assert [
        page
        for page in pages
        if not re.search(r"^!\[[^\]]{20,}\]\(\S+\)$", PAGES[page], re.MULTILINE)
    ] == []


def test_pictures_are_those_that_the_command_draws_and_small():
    drawn = pictures.list_pictures()
    for name in ("idea", "epoch"):
        assert (pictures.PICTURES / f"{name}.svg").read_text() == drawn[name](), (
            "python -m bench.docs.pictures"
        )
    kept = {path.stem: path.stat().st_size for path in pictures.PICTURES.glob("*.svg")}
    assert set(drawn) <= set(kept)
    assert {name: size for name, size in kept.items() if size > pictures.MOST_BYTES} == {}


def test_every_how_to_begins_with_its_command():
    pages = {
        page: text.partition("\n## ")[0]
        for page, text in PAGES.items()
        if page.startswith("docs/how-to/")
    }
    assert [
        page for page, opening in pages.items() if not re.search(r"^# .+\n\n```bash\n", opening)
    ] == []


def test_pages_stay_short():
    assert len(DOCS) <= MOST_PAGES
    sizes = {
        page: len(text.split())
        for page, text in PAGES.items()
        if page.startswith(("docs/", "README"))
    }
    assert sum(sizes.values()) <= MOST_WORDS
    on_site = [
        page for page in sizes if page.startswith("docs/") and not page.startswith(site.OFF_SITE)
    ]
    assert sum(sizes[page] for page in on_site) <= MOST_WORDS_ON_SITE
    assert len(PAGES["README.md"].split()) <= MOST_WORDS_OF_README
    assert [page for page, text in PAGES.items() if "<details" in text] == []


def test_readme_shows_an_epoch_of_the_profile_that_is_kept():
    """That it is what the command prints, another test says, of every console block."""
    (shown,) = [session.text for session in sessions() if session.page == "README.md"]
    assert shown.startswith("stash show docs/pictures/train.stash.json\n")
    assert re.search(r"^  epoch  +[\d.,]+ (s|ms|us) +100\.0%$", shown, re.MULTILINE)
    assert re.search(r"^    step  +[\d.,]+ (s|ms|us) \+/- [\d.,]+ +100\.0%$", shown, re.MULTILINE)


def test_no_moment_of_the_readmes_first_picture_is_an_empty_box():
    picture = (ROOT / "docs/pictures/profile.svg").read_text()
    frames = re.findall(r'<g id="f\d+">(.*?)</g>', picture, re.DOTALL)
    assert len(frames) > 1
    assert all(len(re.findall(r">[^<]*\w[^<]*</text>", frame)) > 5 for frame in frames)
    assert re.search(r"@keyframes f0\{0%\{visibility:hidden\}0\.00%\{visibility:visible\}", picture)


def test_links_of_the_readme_work_on_another_page_that_shows_it():
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", PAGES["README.md"]))
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_pages_named_in_the_source_are_there():
    sources = [
        *(ROOT / "src").rglob("*.py"),
        ROOT / "Makefile",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
    ]
    named = {
        (path.name, page)
        for path in sources
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())
    }
    assert len(named) > 20
    assert sorted(f"{name}: {page}" for name, page in named if page not in PAGES) == []


def test_every_example_is_explained():
    shown = PAGES["examples/README.md"]
    assert [
        path.name for path in (ROOT / "examples").glob("*.py") if f"({path.name})" not in shown
    ] == []


def test_versions_agree():
    version = re.escape(stash.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert re.search(rf"^## \[{version}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@cache
def sentences():
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


def longest_piece(quote):
    """The longest part of a quoted sentence that stands for no value."""
    pieces = re.split(rf"^--[a-z-]+|{ANYTHING}|'?\b[A-Z]+\b'?|\d+", quote)
    return max((piece.strip(" ±%'") for piece in pieces), key=len)


def test_sentences_explained_are_sentences_printed():
    rows = re.findall(r"^\| (`.*?) \| ", PAGES["docs/troubleshooting.md"], re.MULTILINE)
    quotes = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]
    assert len(quotes) > 50
    pieces = {quote: longest_piece(quote) for quote in quotes}
    assert [
        quote for quote, piece in pieces.items() if len(piece) <= 4 or piece not in sentences()
    ] == []


def test_the_reference_has_every_command_and_option():
    found = re.findall(r"^## `([^`]+)`\n(.*?)(?=^##+ |\Z)", reference.page(), FLAGS)
    sections, shown = dict(found), dict(reference.commands())
    assert list(sections) == list(shown)
    for words, command in shown.items():
        assert {
            name for name, _ in reference.options(command) if name not in sections[words]
        } == set(), words


def test_links_out_of_the_documentation_lead_to_the_repository():
    text = "[a](../SECURITY.md) [b](method.md#the-ladder) [c](https://pytorch.org) [d](#here)"
    assert site.outward(text, "") == text.replace("../SECURITY.md", f"{site.ON_THE_WEB}SECURITY.md")
    assert (
        site.outward("[e](../../examples/ddp.py)", "how-to")
        == f"[e]({site.ON_THE_WEB}examples/ddp.py)"
    )
    assert site.outward("[f](../method.md)", "how-to") == "[f](../method.md)"
    assert (
        site.outward("[g](decisions/house.md#21)", "")
        == f"[g]({site.ON_THE_WEB}docs/decisions/house.md#21)"
    )


def test_generated_parts_of_pages_are_filled_in():
    marks = {mark for text in PAGES.values() for mark in site.MARK.findall(text)}
    assert marks == set(site.GENERATED)


def test_anchors_of_the_site_are_those_of_github():
    assert site.anchor("`stash compare`, `check`, and more") == "stash-compare-check-and-more"
    assert site.anchor("The paper's percentages: G & P") == "the-papers-percentages-g--p"


def test_the_reference_has_every_field_of_every_document():
    page = formats.page()
    sections = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    for root in formats.DOCUMENTS.values():
        for record in formats.records_of(root):
            shown = re.findall(r"^\| `(\w+)` \| (.+?) \| ", sections[record.__name__], re.MULTILINE)
            assert [name for name, _ in shown] == list(formats.annotations(record)), record.__name__
    assert (
        "| `ready_seconds` | number or null | Since the first gradient of the backward pass became ready. |"
        in page
    )
    assert "| `hosts` | list of [Host](#host) | In the order of the nodes. |" in page


def test_the_reference_has_every_column_of_a_store():
    page = formats.page()
    assert [name for name in formats.TABLES if f"### `{name}`" not in page] == []


def test_documents_that_the_reference_has_are_on_the_page_of_formats():
    suffixes = [
        word for title in formats.DOCUMENTS for word in re.findall(r"`(\*\.[\w.]+)`", title)
    ]
    assert len(suffixes) == 7
    assert [suffix for suffix in suffixes if f"`{suffix}`" not in PAGES["docs/format.md"]] == []


if __name__ == "__main__":
    rewrite()


def test_every_option_stands_in_a_page_that_people_wrote():
    assert reference.find_undocumented(ROOT) == [], (
        "explain each in a page of docs/, in a few words, or remove it"
    )
