"""The GitHub action: inputs and profiles of a pull request that would run commands, or act in its comment."""

import json
import shutil
import sys
from pathlib import Path

import yaml

from tests.faults.case import Case, Expected

ROOT = Path(__file__).parents[3]
FAST, SLOW = (
    str(ROOT / f"bench/predict/data/testbed/2-x-{rate}mbit-4-MiB.stash.json")
    for rate in (1600, 100)
)
WRITES = ("stash-*.md", "stash-*.txt", "stash.xml", "theirs.stash.json")


def prepared(room):
    """The action's first step as a file, ``stash`` as a program, and a profile whose texts act in Markdown."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    (room.outside / "step.sh").write_text(steps[0]["run"])
    program = room.outside / "stash"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m stash "$@"\n')
    program.chmod(0o755)
    document = json.loads(Path(FAST).read_text())
    document["hosts"][0]["hostname"] = (
        "x ~~~ ``` </details> @org/all ![x](https://attacker.invalid/b.png)"
    )
    (room.work / "theirs.stash.json").write_text(json.dumps(document))


def step(profile, baseline="", limits=""):
    def program(room):
        given = (f"PROFILE={profile}", f"BASELINE={baseline}", f"LIMITS={limits}")
        files = (
            f"GITHUB_OUTPUT={room.outside / 'output'}",
            f"GITHUB_STEP_SUMMARY={room.outside / 'summary.md'}",
        )
        path = (
            f"PATH={room.outside}:{Path(shutil.which('bash') or '/bin/bash').parent}:/usr/bin:/bin"
        )
        return (
            "env",
            path,
            *given,
            *files,
            "bash",
            "--noprofile",
            "--norc",
            "-eo",
            "pipefail",
            str(room.outside / "step.sh"),
        )

    return program


def closes_nothing(outcome, room):
    from markdown_it import MarkdownIt

    shown = MarkdownIt("commonmark", {"html": True}).render(
        (room.outside / "summary.md").read_text()
    )
    return "the summary loads a picture" if "<img" in shown else None


def case(name, words, code, *says):
    return Case(
        "action",
        name,
        prepare=prepared,
        program=words,
        check=None if code else closes_nothing,
        expected=Expected((code,), says, writes=WRITES),
    )


CASES = [
    case("its defaults", step(FAST), 0),
    case("a profile whose texts act", step("theirs.stash.json", SLOW), 0, "Stash check: passes"),
    case(
        "a slower baseline that is not there",
        step(FAST, limits="--slower 5%"),
        2,
        "needs a baseline",
    ),
    case(
        "commands in the limits",
        step(FAST, limits="--max step=9s $(touch hacked) `touch hacked`; touch hacked"),
        2,
    ),
    case("commands in the profile's name", step("$(touch hacked).stash.json"), 2),
    case("a pattern for a name", step("*.json"), 2, r"no file \*\.json"),
    case(
        "an option that writes elsewhere",
        step(FAST, limits="--junit=hacked"),
        2,
        "the input limits has --junit",
    ),
    case("a quote that never ends", step(FAST, limits="'--max"), 2, "ends within quotes"),
]
