"""Elements hold what they are given as text; no other file writes markup around what it is given."""

import ast
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markupsafe import Markup
from pydantic import ValidationError

import stash
from stash.plan.records import StallShare
from stash.ui.charts.svg import draw_strip
from stash.ui.elements import element, local_address, prose_markup, style_sheet
from stash.ui.markdown import escape_line

PACKAGE = Path(stash.__path__[0])
SHOWN = ("ui", "report", "whatif", "plan", "study", "spot")
TRAP = "\"><script>alert('1')</script>"
FLAT = {"value": 1.0, "low": 1.0, "high": 1.0}
_OPENS = re.compile(r"</?[A-Za-z!]")
_BUILDERS = ("elements.py", "html.py", "markdown.py")
"""Files that say of a text that it is markup: ``Markup(TEXT)``."""


def test_texts_and_attributes_are_escaped_and_elements_are_not():
    inner = element("b", TRAP)
    made = element("a", inner, TRAP, class_=TRAP, aria_label=TRAP, href="#x", width=1.50)
    assert "<script" not in made
    assert made.startswith('<a class="&#34;&gt;&lt;script')
    assert made.count("<b>") == 1 == made.count("</b>")
    assert 'width="1.5"' in made
    assert element("path", d="M0 0", class_="", fill=None) == '<path d="M0 0"/>'


@pytest.mark.parametrize("name", ["script", "meta", "x onload=", "", "base", "form"])
def test_no_element_that_acts_is_built(name):
    with pytest.raises(ValueError, match="no element"):
        element(name)


@pytest.mark.parametrize("name", ["onclick", "style"])
def test_no_attribute_that_acts_is_built(name):
    with pytest.raises(ValueError, match="no attribute"):
        element("rect", **{name: "x"})


def test_a_style_sheet_ends_where_it_is_ended():
    with pytest.raises(ValueError, match="no markup"):
        style_sheet("a{}</style><script>")


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", " javascript:x", "//host/x", "/\\host", "data:text/html,x"]
)
def test_a_link_leads_to_no_scheme_and_no_host(address):
    assert re.match(r"\./[^/\\]", local_address(address))
    assert 'href="./' in element("a", "x", href=address)


def test_a_link_to_a_row_or_to_a_file_stays():
    assert [local_address(each) for each in ("#row", "a/b.json", "../a.json", "")] == [
        "#row",
        "a/b.json",
        "../a.json",
        "",
    ]


def test_a_sentence_has_its_code_and_nothing_else():
    assert prose_markup("type `a < b` <b>") == "type <code>a &lt; b</code> &lt;b&gt;"


def test_an_unknown_series_is_drawn_plain():
    drawn = draw_strip([(TRAP, 0.5), ("prep", 0.5)])
    assert isinstance(drawn, Markup)
    assert "<script" not in drawn
    assert drawn.count('class="s-plain"') == 1


def test_a_plan_with_a_stall_of_another_name_is_refused():
    with pytest.raises(ValidationError, match="one of compute, transfer"):
        StallShare.model_validate(
            {"name": TRAP, "seconds": FLAT, "share": 0.1, "dollars": FLAT, "origin": "measured"}
        )


@pytest.mark.parametrize(
    "text",
    [
        "`a\\|<img src=x>`",
        "``<img src=x>`",
        "`a``<img src=x>``",
        "[x](javascript:alert(1))",
        "<https://a.b>",
        "![x](https://a.b/c)",
        "https://a.b www.a.b a@b.c",
        "\\<img src=x>",
        "a | b",
        "&lt;img&gt;",
        "[x]: //a.b",
        "<!-- x",
        "`<img src=x>",
        "1. <img src=x>",
        "<a href=//a.b>",
        "\\`<img src=x>`",
    ],
)
def test_markdown_of_any_text_is_that_text(text):
    shown = escape_line(text)
    made = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(
        f"| {shown} | {shown} |\n|---|---|\n| {shown} | {shown} |\n\n{shown}\n"
    )
    opened = {tag.lower() for tag in re.findall(r"<([A-Za-z]+)", made)}
    assert opened <= {"table", "thead", "tbody", "tr", "th", "td", "p", "code", "ol", "li"}
    assert made.count("<td") == 2


def _markup(tree):
    """Where a text that opens an element is put together with another."""
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.JoinedStr):
            parts = list(node.values)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
            parts = [node.left, node.right]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "format"
        ):
            parts = [node.func.value]
        for part in parts:
            if (
                isinstance(part, ast.Constant)
                and isinstance(part.value, str)
                and _OPENS.search(part.value)
            ):
                yield node.lineno, part.value


def _says_so(tree):
    return any(
        isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "Markup"
        and node.args
        and not isinstance(node.args[0], ast.Constant)
        for node in ast.walk(tree)
    )


def test_markup_is_written_in_one_place():
    for path in sorted(p for folder in SHOWN for p in (PACKAGE / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name != "elements.py":
            assert list(_markup(tree)) == [], path
        assert not _says_so(tree) or path.name in _BUILDERS, path


def test_no_template_trusts_a_text():
    for path in PACKAGE.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape", text), path
        unquoted = re.findall(r"=\{\{", text)
        assert unquoted == [], path
