"""Commands of benchmarks that the Makefile runs, and pages quote figures of, are still there."""

from __future__ import annotations

import re

import pytest
from documentation import ROOT

PAGES = ("Makefile", "docs/how-we-know.md", "bench/RESULTS.md", "docs/catalog.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_benchmark_has_its_module(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").partition("\n## Archived")[0]
    modules = set(re.findall(r"python -m ((?:bench|tests)(?:\.\w+)*)", text))
    assert modules
    missing = [name for name in sorted(modules) if not _is_runnable(name)]
    assert not missing, f"{page} names commands that are gone: {', '.join(missing)}"


def _is_runnable(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
