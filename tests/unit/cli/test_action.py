"""``action.yml``: its shell steps, run one after the other as GitHub runs them, with a ``gh`` that keeps comments."""

import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
FAST, SLOW = (
    str(ROOT / f"bench/predict/data/testbed/2-x-{rate}mbit-4-MiB.stash.json")
    for rate in (1600, 100)
)
GH = f"""#!{sys.executable}
import json, os, pathlib, sys
words, store = sys.argv[1:], pathlib.Path(os.environ["COMMENTS"])
comments = json.loads(store.read_text()) if store.exists() else []
assert words.pop(0) == "api" and os.environ["GH_TOKEN"] == "secret"
method = words[words.index("--method") + 1] if "--method" in words else "GET"
path = next(word for word in words if word.startswith("repos/"))
if method == "GET":
    assert path == "repos/we/job/issues/7/comments" and words[-1].startswith('.[] | select(.body | startswith("')
    start = words[-1].split('"')[1]
    print("\\n".join(str(number) for number, body in enumerate(comments, 100) if body.startswith(start)))
else:
    if "REFUSES" in os.environ:
        sys.exit("HTTP 403: Resource not accessible by integration")
    kind, _, file = words[words.index("-F") + 1].partition("=@")
    body = pathlib.Path(file).read_text()
    if method == "POST":
        assert path == "repos/we/job/issues/7/comments"
        comments.append(body)
    else:
        comments[int(path.removeprefix("repos/we/job/issues/comments/")) - 100] = body
    store.write_text(json.dumps(comments))
"""


@dataclass
class Runner:
    """What GitHub's runner does with a composite action: expressions, conditions, outputs, a shell for each step."""

    folder: Path
    event: dict[str, Any] = field(default_factory=lambda: {"pull_request": {"number": 7}})
    printed: str = ""

    def run(self, **inputs):
        """The exit code of the first step that fails, else 0."""
        given = {name.replace("_", "-"): text for name, text in inputs.items()}
        assert set(given) <= set(ACTION["inputs"])
        values = {
            "github": {"token": "secret", "repository": "we/job", "event": self.event},
            "steps": {},
            "inputs": {},
        }
        for name, declared in ACTION["inputs"].items():
            assert name in given or not declared.get("required")
            values["inputs"][name] = given.get(
                name, self.fill_text(declared.get("default", ""), values)
            )
        for step in ACTION["runs"]["steps"]:
            assert step["shell"] == "bash"
            if not self.holds(step.get("if", "true"), values):
                continue
            code, outputs = self.shell(
                step["run"], {k: self.fill_text(v, values) for k, v in step["env"].items()}
            )
            if "id" in step:
                values["steps"][step["id"]] = {"outputs": outputs}
            if code:
                return code
        return 0

    def value(self, name, values):
        found = values
        for part in name.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        return str(found)

    def fill_text(self, text, values):
        return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda match: self.value(match[1], values), text)

    def holds(self, condition, values):
        """Of names, comparisons with a text and &&, which is all that is used."""
        parts = [
            re.fullmatch(r"(true)|([\w.]+)(?: == '(\w+)')?", part)
            for part in condition.split(" && ")
        ]
        assert all(parts), condition
        return all(
            part[1]
            or (self.value(part[2], values) == part[3] if part[3] else self.value(part[2], values))
            for part in parts
            if part
        )

    def shell(self, script, environment):
        output = self.folder / "output"
        program = self.folder / "step.sh"
        output.write_text("")
        program.write_text(script)
        files = {
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
        }
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(program)],
            check=False,
            text=True,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                **files,
                **environment,
                "PATH": path,
                "COMMENTS": str(self.folder / "comments.json"),
            },
        )
        self.printed += done.stdout
        return done.returncode, dict(line.split("=", 1) for line in output.read_text().splitlines())

    @property
    def comments(self):
        kept = self.folder / "comments.json"
        return json.loads(kept.read_text()) if kept.exists() else []


@pytest.fixture
def runner(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("gh", GH), ("stash", f'#!/bin/sh\nexec {sys.executable} -m stash "$@"\n')):
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    return Runner(tmp_path)


def test_a_step_that_got_slower_fails_and_the_comment_says_what_changed(runner):
    assert runner.run(profile=SLOW, baseline=FAST, limits="--slower 5%") == 1
    (comment,) = runner.comments
    assert comment.startswith("<!-- stash -->\n## Stash check: fails\n")
    assert re.search(
        r"^\| fails \| \\--slower 5% \| the step changed by 733 ± ", comment, re.MULTILINE
    )
    assert re.search(r"^\| network \| 11\.3 .*749\.5 .*\| slower \|$", comment, re.MULTILINE)
    assert "~~~" not in comment
    assert len(comment) < 65_536  # as GitHub takes them
    assert (runner.folder / "summary.md").read_text() == comment
    assert "<failure" in (runner.folder / "stash.xml").read_text()


def test_what_is_undecided_warns_or_fails_as_asked(runner):
    undecided = {"profile": FAST, "limits": "--max step=156ms", "comment": "false"}
    assert runner.run(**undecided) == 0
    assert "::warning::it is undecided" in runner.printed
    assert runner.run(**undecided, undecided="fail") == 1
    assert runner.comments == []


@pytest.mark.slow
def test_without_a_pull_request_there_is_no_comment_and_a_mistake_is_one(runner):
    runner.event = {}
    assert runner.run(profile=FAST, limits="--max network=90%") == 0
    assert runner.run(profile="nothing.stash.json", limits="--max network=90%") == 2
    assert "there is no file nothing.stash.json" in runner.printed
    assert runner.comments == []


@pytest.mark.slow
def test_a_comment_that_is_refused_changes_no_verdict(runner, monkeypatch):
    monkeypatch.setenv("REFUSES", "1")
    assert runner.run(profile=FAST, baseline=SLOW) == 0
    assert "::warning::no comment was written" in runner.printed


def test_slower_without_a_baseline_is_a_mistake_that_the_summary_explains(runner):
    assert runner.run(profile=FAST, limits="--slower 5%") == 2
    assert "--slower needs a baseline: set the input baseline" in runner.printed


def test_inputs_are_words_and_no_shell(runner):
    (runner.folder / "pattern.stash.json").write_text("{}")
    hostile = "$(touch hacked) `touch hacked` ; touch hacked | touch hacked > hacked & touch hacked"
    assert runner.run(profile=f"{FAST} {hostile}", limits="--max network=90%") == 2
    assert (
        runner.run(profile=FAST, baseline=f"{SLOW}{hostile}", limits=f"--max network=90% {hostile}")
        == 2
    )
    assert not (runner.folder / "hacked").exists()
    assert runner.run(profile="*.stash.json") == 2
    assert "there is no file *.stash.json" in runner.printed
    assert all("${{" not in step["run"] for step in ACTION["runs"]["steps"])


def test_no_content_closes_what_it_stands_in(runner):
    # GIVEN a profile, of a pull request, whose every text would end a fence, mention people and load a picture
    tilde, tick, details = (
        f"{'x' * 97} {mark} \n{mark}\n@org/everyone ![x](https://attacker.invalid/b.png) <img src=//attacker.invalid>"
        for mark in ("~~~~~~~~~", "```", "</details>")
    )
    document = json.loads(Path(FAST).read_text())
    document["software"].update(
        torch=tick.replace("\n", " ")[:200], python=tilde.replace("\n", " ")[:200]
    )
    document["hosts"][0].update(hostname=details.replace("\n", " ")[:200])
    document["skipped"][0]["why"] = f"{tick} {details} {tilde}".replace("\n", " ")
    (runner.folder / "theirs.stash.json").write_text(json.dumps(document))
    assert runner.run(profile="theirs.stash.json", baseline=SLOW) == 0
    assert runner.run(profile="theirs.stash.json") == 0
    rendered = MarkdownIt("commonmark", {"html": True}).render(
        (runner.folder / "summary.md").read_text()
    )
    assert re.findall(r"<(?:img|a|script)\b[^>]*>", rendered) == []
    outside = re.sub(r"<code.*?</code>", "", rendered, flags=re.DOTALL)
    assert "@org" not in outside
