"""``stash mcp`` asked by the SDK's own client, over standard input and output: 30 questions about ten artefacts."""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from stash.mcp_server.brief import MAX_BYTES

pytest.importorskip("mcp")
import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = Path(__file__).parents[2]
ARTEFACTS = {
    "one": "tests/golden/one-node.stash.json",
    "two": "tests/golden/two-nodes.stash.json",
    "squeezenet": "docs/pictures/squeezenet1_0.stash.json",
    "slow-net": "bench/predict/data/testbed/2-x-100mbit-4-MiB.stash.json",
    "fast-net": "bench/predict/data/testbed/2-x-1600mbit-4-MiB.stash.json",
    "slow-disk": "bench/predict/data/testbed/disk-20MB-s-workers-1-batch-4.stash.json",
    "probe": "tests/faults/fuzz/corpus/probe/two-nodes.json",
    "plan": "tests/golden/schema-1.plan.json",
    "fleet": "tests/faults/fuzz/corpus/spot-plan/one.json",
    "spotlog": "tests/golden/schema-1.spotlog.json",
}
SUFFIXES = {
    "probe": ".host.json",
    "plan": ".plan.json",
    "fleet": ".plan.json",
    "spotlog": ".spotlog.json",
}
QUESTIONS, REFUSED = (
    yaml.safe_load(Path(__file__).with_name(f"mcp_{name}.yaml").read_text(encoding="utf-8"))
    for name in ("questions", "refused")
)


def look_up(answer, path):
    """What stands at ``a.0.b``; elements of lists go by number, by name or by what is gone."""
    for key in path.split("."):
        if not isinstance(answer, list):
            answer = answer[key]
        elif key.isdigit():
            answer = answer[int(key)]
        else:
            answer = next(each for each in answer if key in (each.get("name"), each.get("gone")))
    return answer


def is_right(found, wanted):
    if "begins" in wanted:
        return found.startswith(wanted["begins"])
    if "has" in wanted:
        return wanted["has"] in found
    if "holds" in wanted:
        return found["low"] < wanted["holds"] < found["high"]
    number = isinstance(wanted["is"], float)
    return found == (pytest.approx(wanted["is"], rel=1e-4) if number else wanted["is"])


TRAIN = """
import torch
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(256, 64)).sum().backward()
    optimizer.step()
"""


def ask(folder, calls):
    """What each call answers, of one server that is started in ``folder``; the tools that it lists."""

    async def asked():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "stash", "mcp"], cwd=folder, env=dict(os.environ)
        )
        answers = []
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                (content,) = result.content
                assert result.is_error or result.structured_content == json.loads(content.text)
                answers.append(Answer(bool(result.is_error), content.text))
        return answers, {tool.name: tool for tool in tools}

    return anyio.run(asked)


@dataclass(frozen=True)
class Answer:
    """Of one call."""

    is_refused: bool
    text: str

    @property
    def content(self):
        return json.loads(self.text)


def lay_out_artefacts(folder):
    for name, origin in ARTEFACTS.items():
        shutil.copy(ROOT / origin, folder / f"{name}{SUFFIXES.get(name, '.stash.json')}")


def named(arguments):
    """The same with files for artefacts."""
    return {
        key: f"{value}{SUFFIXES.get(value, '.stash.json')}"
        if isinstance(value, str) and value in ARTEFACTS
        else value
        for key, value in arguments.items()
    }


SAME_CHANGE = (
    {"changes": {"nodes": 4}},
    {"changes": {"nodes": "4"}},
    {"changes": {"nodes": 4.0}},
    {"nodes": 4},
)
FLAGS = ({"allow_spot": True}, {"allow_spot": "false"}, {"allow-spot": None})
MANY_RUNS = {"runs": ["two.stash.json"], "epochs": 3, "samples": 1e6, "cloud": ["aws", "gcp"]}
READING = {
    "questions": [(each["tool"], named(each["with"])) for each in QUESTIONS],
    "too long": [("explain", {"run": "x" * 100_000})],
    "refused": [(each["tool"], each["with"]) for each in REFUSED],
    "changes": [("what_if", {"run": "two.stash.json", **way}) for way in SAME_CHANGE],
    "options": [
        *(
            (
                "recommend",
                {"runs": "two.stash.json", "options": {"samples": "1M", "epochs": 3, **flag}},
            )
            for flag in FLAGS
        ),
        ("recommend", MANY_RUNS),
    ],
    "records": [
        ("list", {"limit": 3}),
        ("explain", {"run": "schema-1.fix.json"}),
        ("explain", {"run": "schema-1.watch.jsonl"}),
    ],
}
"""Calls that start nothing, by what they show: one server answers them all."""


@dataclass(frozen=True)
class Conversation:
    """With one server."""

    answers: dict[str, list[Answer]]
    tools: dict[str, Any]
    left: set[Path]
    """Files that were not there before."""


@pytest.fixture(scope="module")
def reading(tmp_path_factory):
    """All calls of ``READING``, answered in a folder with the artefacts, two records and a pipe."""
    folder = tmp_path_factory.mktemp("mcp")
    lay_out_artefacts(folder)
    for name in ("schema-1.fix.json", "schema-1.watch.jsonl"):
        shutil.copy(ROOT / "tests/golden" / name, folder)
    os.mkfifo(folder / "pipe.stash.json")
    before = set(folder.iterdir())
    answers, tools = ask(folder, [call for calls in READING.values() for call in calls])
    rest = iter(answers)
    return Conversation(
        {kind: [next(rest) for _ in calls] for kind, calls in READING.items()},
        tools,
        set(folder.iterdir()) - before,
    )


def test_thirty_questions_about_ten_artefacts_are_answered(reading):
    assert len(QUESTIONS) == 30
    assert {v for each in QUESTIONS for v in each["with"].values() if isinstance(v, str)} == set(
        ARTEFACTS
    )
    wrong = []
    for question, answer in zip(QUESTIONS, reading.answers["questions"], strict=True):
        found = answer.text if answer.is_refused else look_up(answer.content, question["at"])
        is_short = len(answer.text.encode()) <= MAX_BYTES
        if answer.is_refused or not is_right(found, question) or not is_short:
            wrong.append(f"{question}: {found!r}")
    assert wrong == []


def test_errors_have_codes_and_nothing_that_costs_money_is_started(reading):
    (too_long,) = reading.answers["too long"]
    assert too_long.is_refused
    assert too_long.content["error"]["code"] in {"failed", "usage"}
    answers = reading.answers["refused"]
    assert all(answer.is_refused for answer in answers)
    errors = [answer.content["error"] for answer in answers]
    assert [error["code"] for error in errors] == [each["code"] for each in REFUSED]
    assert errors[-1]["message"].startswith("budget: unknown time unit 'x' in '2x'")
    assert reading.left == set()


def test_changes_and_options_are_taken_as_any_model_writes_them(reading):
    answers = [*reading.answers["changes"], *reading.answers["options"]]
    assert [answer.text for answer in answers if answer.is_refused] == []
    assert {
        answer.content["forecast"]["samples_per_second"] for answer in reading.answers["changes"]
    } == {4763.9}


def test_every_tool_says_what_it_does_takes_and_answers(reading):
    tools = reading.tools
    assert {"profile", "fix", "watch", "list", "explain", "what_if", "recommend"} < set(tools)
    for name, tool in tools.items():
        runs = name in ("profile", "fix", "watch")
        hints = tool.annotations
        assert (hints.read_only_hint, hints.destructive_hint, hints.open_world_hint) == (
            not runs,
            runs,
            runs,
        )
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False
        for parameter in tool.input_schema["properties"].values():
            assert parameter["description"]
            assert all(each["description"] for each in parameter.get("properties", {}).values())
        assert tool.output_schema["required"]
    assert (
        tools["what_if"].input_schema["properties"]["changes"]["properties"]["nodes"]["description"]
        == "N: Use N machines."
    )


def test_a_folder_is_listed_and_records_are_explained(reading):
    listed, fix, watch = (answer.content for answer in reading.answers["records"])
    assert len(listed["artefacts"]) == 3
    assert fix["tried"][0]["standing"] == "kept"
    assert watch["steps"] == 604


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.mark.slow
def test_a_command_is_watched_and_ended_and_a_script_is_fixed(folder):
    (folder / "train.py").write_text(TRAIN.replace("100_000", "1_000_000"))
    (watched, fixed), _ = ask(
        folder,
        [
            ("watch", {"command": "train.py", "budget": 15}),
            ("fix", {"command": ["train.py"], "budget": 20, "output": "mine.fix.json"}),
        ],
    )
    assert not watched.is_refused, watched
    assert watched.content["steps"] > 0
    assert watched.content["file"] == "train.watch.jsonl"
    assert not fixed.is_refused, fixed
    assert fixed.content["file"] == "mine.fix.json"


def test_a_command_is_profiled_and_its_file_explained(folder):
    (folder / "fails.py").write_text("raise RuntimeError('no such GPU')")
    (profiled, explained, broken), _ = ask(
        folder,
        [
            ("profile", {"command": ["train.py"], "budget": "2s"}),
            ("explain", {"run": "train.stash.json"}),
            ("profile", {"command": ["fails.py"], "budget": 2}),
        ],
    )
    assert not profiled.is_refused, profiled
    answer = profiled.content
    assert answer.pop("file") == "train.stash.json"
    assert answer["verdict"]["stall"] in (None, "compute")
    assert not explained.is_refused
    assert {**answer, "more": ""} == {**explained.content, "more": ""}
    assert broken.is_refused
    assert broken.content["error"]["code"] == "job"
    assert "no such GPU" in broken.text
