"""The table of what listens: SECURITY.md has the one of the code, and no module opens what is not in it."""

import re
from pathlib import Path

from bench.docs.listeners import LISTENERS, table

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
TABLE = re.compile(r"(<!-- listeners: .*? -->\n)(.*?)(<!-- /listeners -->)", re.DOTALL)
OPENS = re.compile(
    r"(?<!def )\b(create_server|bind_listener|bound|listen)\((?!self|\)|wanted)"
    r"|\.listen\(\)|\.bind\(\(|\.bind\(f\"|is_master=True|\bhand_over\("
)
"""How a socket comes to listen here; other things that are bound or listened to have other arguments."""
NO_SOCKETS = {"stash.measure.agent.runner.ladder_runner", "stash.spot.sync.resuming"}
"""Where somebody listens to a script, or for requests to save."""


def _opening():
    found = set()
    for path in SOURCES.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        if name not in NO_SOCKETS and OPENS.search(path.read_text()):
            found.add(name)
    return found


def test_the_page_has_the_table_of_the_code():
    found = TABLE.search((ROOT / "SECURITY.md").read_text())
    assert found[2].strip() == table(), (
        "write it again: .venv/bin/python -m tests.unit.test_listeners_table"
    )


def test_every_module_that_opens_a_socket_is_in_the_table_and_no_other():
    declared = {module for each in LISTENERS for module in each.opened_by}
    assert _opening() == declared


if __name__ == "__main__":
    page = ROOT / "SECURITY.md"
    page.write_text(TABLE.sub(lambda found: f"{found[1]}{table()}\n{found[3]}", page.read_text()))
