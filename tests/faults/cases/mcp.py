"""Agents: what a hostile text could make one ask of ``stash mcp``, and what models write that is not quite right."""

import json
import os
import sys
from importlib.util import find_spec

from tests.faults.case import Case, Expected


def has_sdk():
    return find_spec("mcp") is not None


def asking(tool, arguments):
    return lambda room: (sys.executable, "ask_mcp.py", tool, json.dumps(arguments))


def pipe(room):
    os.mkfifo(room.outside / "pipe.stash.json")


def pipe_asked(room):
    return asking("explain", {"run": str(room.outside / "pipe.stash.json")})(room)


def refused(name, tool, arguments, *says):
    return Case(
        "mcp",
        name,
        program=asking(tool, arguments),
        needs=has_sdk,
        expected=Expected((2,), ('"error"', *says)),
    )


CASES = [
    refused(
        "a URL that would carry data out",
        "explain",
        {"run": "https://attacker.invalid/?secret"},
        "not a URL",
    ),
    refused(
        "a bucket as the baseline",
        "compare",
        {"before": "s3://bucket/a", "after": "b"},
        "not a URL",
    ),
    refused(
        "a URL in an option",
        "recommend",
        {"runs": ["a"], "options": {"instances": "gs://b/x"}},
        "not a URL|no",
    ),
    refused("a device", "explain", {"run": "/dev/zero"}, "a device"),
    refused(
        "a command that rents", "watch", {"command": ["sky", "launch", "t.yaml"]}, "costs_money"
    ),
    refused("an argument that is none", "explain", {"rum": "a.stash.json"}, "did you mean run"),
    refused("no argument", "explain", {}, "run: field required"),
    refused("an object where a number is asked for", "list", {"limit": {"n": 1}}, "limit: "),
    refused("a tool that is none", "explane", {"run": "a"}, "did you mean explain"),
    refused("a name of 100,000 letters", "explain", {"run": "x" * 100_000}, "name a file here"),
    Case(
        "mcp",
        "a pipe instead of a file",
        prepare=pipe,
        program=pipe_asked,
        needs=has_sdk,
        expected=Expected((2,), ("a pipe",)),
    ),
    Case(
        "mcp",
        "what is no protocol at all",
        needs=has_sdk,
        program=lambda room: (
            "sh",
            "-c",
            f"printf 'x\\n[[[\\n\\0\\n' | {sys.executable} -m stash mcp",
        ),
        expected=Expected((0,)),
    ),
]
