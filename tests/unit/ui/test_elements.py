"""Elements hold what they are given as text; no other file writes markup around what it is given."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import stash
from stash.ui.elements import element, local_address, prose_markup, style_sheet
from stash.ui.markdown import escape_line

PACKAGE = Path(stash.__path__[0])
TRAP = "\"><script>alert('1')</script>"


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


def test_no_template_trusts_a_text():
    for path in PACKAGE.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe\b|autoescape", text), path
        unquoted = re.findall(r"=\{\{", text)
        assert unquoted == [], path
