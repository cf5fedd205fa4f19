"""Every kind of page against axe's rules (https://github.com/dequelabs/axe-core), by day and by night."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from chromium import CHROMIUM
from reported import probed_whole, whole

from stash.cli.report_command import read_page
from stash.core.artefact import save
from stash.ui.html import render

TESTS = Path(__file__).parents[1]
CORPUS = TESTS / "faults" / "fuzz" / "corpus"
AXE = "axe-core@4.14.1"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
KINDS = {
    "plan.json": TESTS / "golden" / "schema-1.plan.json",
    "fleet.plan.json": CORPUS / "spot-plan" / "one.json",
    "job.spotlog.json": TESTS / "golden" / "schema-1.spotlog.json",
    "vm.host.json": CORPUS / "probe" / "two-nodes.json",
    "job.fix.json": TESTS / "golden" / "schema-1.fix.json",
    "job.watch.jsonl": TESTS / "golden" / "schema-1.watch.jsonl",
}
"""Files of all kinds but profiles, by names that say of which kind they are."""
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
"""Which would refuse axe's script, too."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm, which has axe, is not installed"),
]


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("axe")
    packed = subprocess.run(
        ["npm", "pack", "--silent", AXE], cwd=folder, check=True, capture_output=True, text=True
    )
    shutil.unpack_archive(folder / packed.stdout.split()[-1], folder, "gztar")
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("accessible")
    save(probed_whole(), folder / "one.stash.json")
    save(whole(), folder / "other.stash.json")
    for name, source in KINDS.items():
        (folder / name).write_bytes(source.read_bytes())
    asked = {name: [name] for name in ("one.stash.json", *KINDS)} | {
        "two": ["one.stash.json", "other.stash.json"]
    }
    made = {}
    for name, files in asked.items():
        made[name] = folder / f"{name}.html"
        page = read_page([str(folder / file) for file in files])
        made[name].write_text(_POLICY.sub("", render(page), count=1), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", ["one.stash.json", "two", *KINDS])
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_breaks_no_rule(browser, pages, axe, name, dark):
    browser.load_page(pages[name], dark=dark)
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    browser.run(f"{axe}; 1")
    found = browser.run(
        f"axe.run(document, {{runOnly: {list(RULES)}}}).then((found) => found.violations)"
    )
    assert {each["id"]: each["nodes"][0]["html"] for each in found} == {}


def test_a_page_that_breaks_a_rule_is_found(browser, axe, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<html><body><img src='data:,'></body></html>", encoding="utf-8"
    )
    browser.load_page(tmp_path / "bad.html")
    browser.run(f"{axe}; 1")
    found = browser.run(
        f"axe.run(document, {{runOnly: {list(RULES)}}}).then((found) => found.violations)"
    )
    assert "image-alt" in {each["id"] for each in found}
