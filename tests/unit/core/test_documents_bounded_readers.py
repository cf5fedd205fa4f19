"""Files that somebody else may have written are parsed by the one reader that has bounds."""

import re
from pathlib import Path

import stash

SOURCES = Path(stash.__file__).parent
READERS = (
    "advice",
    "analysis",
    "catalog",
    "cli",
    "core",
    "fix",
    "lab/zoo",
    "market",
    "plan",
    "predict",
    "report",
    "schedule",
    "store",
    "study",
    "whatif",
)
UNBOUNDED = re.compile(
    r"\bjson\.loads?\(|\.read_text\(|\.read_bytes\(|\byaml\.(safe_|full_)?load\(|\bpickle\.load"
)
OWN = {
    "catalog/shipped.py",  # a file of this package
    "core/end_tree.py",  # a process's command, by the kernel
    "core/files.py",  # the reader itself
    "fix/patch.py",  # the user's own script, which is run
    "lab/zoo/registry.py",  # a file of this package
    "study/programs.py",  # a number that a wrapper of this command wrote
}


def test_no_reader_parses_a_file_without_bounds():
    files = [path for folder in READERS for path in (SOURCES / folder).rglob("*.py")]
    found = {str(path.relative_to(SOURCES)) for path in files if UNBOUNDED.search(path.read_text())}
    assert found <= OWN, "read it by core.files: read_up_to, parse_json"
    assert found == OWN, "leave those out of OWN that are gone"
