"""Commands of benchmarks that the Makefile runs, and pages quote figures of, are still there."""

import re

import pytest
from documentation import ROOT

PAGES = ("Makefile", "docs/how-we-know.md", "bench/RESULTS.md", "docs/catalog.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_benchmark_has_its_module(page):
    text = (ROOT / page).read_text(encoding="utf-8").partition("\n## Archived")[0]
    modules = set(re.findall(r"python -m ((?:bench|tests)(?:\.\w+)*)", text))
    assert modules
    missing = [name for name in sorted(modules) if not _is_runnable(name)]
    assert not missing, f"{page} names commands that are gone: {', '.join(missing)}"


def _is_runnable(module):
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_make_has_twelve_targets_and_a_line_for_each():
    """What people type: everything else is a module."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    described = re.findall(r"^([a-z-]+):.*  ## \S", text, re.MULTILINE)
    assert sorted(described) == sorted(phony[1].split())
    assert len(described) <= 12
    contract = {
        "demo",
        "test",
        "check",
        "truth",
        "spot-truth",
        "validate",
        "choices",
        "house",
        "faults",
        "gpu",
    }
    assert contract <= set(described)


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        ".ci/run",
        ".github/workflows/gate.yml",
        "docs",
    ],
)
def test_pages_name_targets_that_are_there(page):
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    files = [ROOT / page] if (ROOT / page).is_file() else [*(ROOT / page).rglob("*.md")]
    named = {
        name
        for file in files
        for name in re.findall(r"`make ([a-z-]+)", file.read_text(encoding="utf-8"))
    }
    typed = re.compile(r"^\W*(?:run: |nice )?make ([a-z-]+)(?:$|  | [>|]| *#)", re.MULTILINE)
    named |= {name for file in files for name in typed.findall(file.read_text(encoding="utf-8"))}
    assert named or page == "SECURITY.md"
    assert named <= targets
