"""What a run of tests says at its end: what it skipped and how to get that, and what it left in the repository."""

import re
import subprocess
from collections import Counter

HOW_TO_GET = (
    (r"Chromium", "no browser", "apt install chromium"),
    (r"npm", "no npm", "apt install npm"),
    (r"iproute2", "no ip", "apt install iproute2"),
    (r"no program (\w+)", r"no \1", r"apt install \1"),
    (r"no (bash|zsh|fish)\b", r"no \1", r"apt install \1"),
    (r"no gh\b", "no gh", "apt install gh"),
    (r"node exporter", "no node exporter", "apt install prometheus-node-exporter"),
    (r"prometheus", "no Prometheus", "apt install prometheus"),
    (r"SkyPilot", "no SkyPilot", "see tests/integration/real_skypilot.py"),
    (r"could not import '([\w-]+)", r"no \1", r"pip install \1"),
    (r"no package index", "no package index", "connect to one"),
    (r"\broot\b(?! may)|namespaces", "not root", "run as root"),
    (r"GPU", "no GPU", "make gpu"),
)
"""By a pattern in the reason of a skip: what is missing, and what brings it."""
MADE_BY_TOOLS = re.compile(
    r"__pycache__/|(^|/)\.[a-z_]+_cache/|\.egg-info/|^(\.venv|\.hypothesis|build|data)/"
)
"""Folders that Python, pytest and what runs beside the tests write."""


def describe_skips(reasons):
    """One line for all tests that were skipped; empty for none."""
    counts = Counter(_describe_skip(reason) for reason in reasons)
    if not counts:
        return ""
    parts = ", ".join(f"{count} {what}" for what, count in counts.most_common())
    return f"{counts.total()} skipped: {parts}"


def _describe_skip(reason):
    for pattern, missing, how in HOW_TO_GET:
        found = re.search(pattern, reason)
        if found is not None:
            return f"{found.expand(missing)} ({found.expand(how)})"
    return "not for this machine"


def list_strays(root):
    """Files and folders in a repository that git does not have, ignored ones too; None where git cannot say."""
    command = ["git", "status", "--porcelain", "--ignored", "-z"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    entries = (entry[3:] for entry in done.stdout.split("\0") if entry.startswith(("??", "!!")))
    return frozenset(entry for entry in entries if not MADE_BY_TOOLS.search(entry))
