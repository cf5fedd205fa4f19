"""``stash mcp`` asked by the SDK's own client, over standard input and output: 30 questions about ten artefacts."""

import json
import os
import shutil
import sys
from pathlib import Path

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
    """Whether each call failed, and its answer, of one server that is started in ``folder``."""

    async def asked():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "stash", "mcp"], cwd=folder, env=dict(os.environ)
        )
        answers = []
        async with Client(stdio_client(server)) as client:
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                (content,) = result.content
                assert result.is_error or result.structured_content == json.loads(content.text)
                answers.append((bool(result.is_error), content.text))
        return answers

    return anyio.run(asked)


@pytest.fixture
def folder(tmp_path):
    for name, origin in ARTEFACTS.items():
        shutil.copy(ROOT / origin, tmp_path / f"{name}{SUFFIXES.get(name, '.stash.json')}")
    return tmp_path


def named(arguments):
    """The same with files for artefacts."""
    return {
        key: f"{value}{SUFFIXES.get(value, '.stash.json')}"
        if isinstance(value, str) and value in ARTEFACTS
        else value
        for key, value in arguments.items()
    }


def test_thirty_questions_about_ten_artefacts_are_answered(folder):
    assert len(QUESTIONS) == 30
    assert {v for each in QUESTIONS for v in each["with"].values() if isinstance(v, str)} == set(
        ARTEFACTS
    )
    answers = ask(folder, [(each["tool"], named(each["with"])) for each in QUESTIONS])
    wrong = []
    for question, (failed, text) in zip(QUESTIONS, answers, strict=True):
        found = text if failed else look_up(json.loads(text), question["at"])
        if failed or not is_right(found, question) or len(text.encode()) > MAX_BYTES:
            wrong.append(f"{question}: {found!r}")
    assert wrong == []


def test_errors_have_codes_and_nothing_that_costs_money_is_started(folder):
    os.mkfifo(folder / "pipe.stash.json")
    before = set(folder.iterdir())
    long_name = ("explain", {"run": "x" * 100_000})
    (refused, long_answer), *answers = ask(
        folder, [long_name, *((each["tool"], each["with"]) for each in REFUSED)]
    )
    assert refused
    assert json.loads(long_answer)["error"]["code"] in {"failed", "usage"}
    assert all(failed for failed, _ in answers)
    assert [json.loads(text)["error"]["code"] for _, text in answers] == [
        each["code"] for each in REFUSED
    ]
    assert json.loads(answers[-1][1])["error"]["message"].startswith(
        "budget: unknown time unit 'x' in '2x'"
    )
    assert set(folder.iterdir()) == before


def test_changes_and_options_are_taken_as_any_model_writes_them(folder):
    two = {"run": "two.stash.json"}
    ways = [
        {"changes": {"nodes": 4}},
        {"changes": {"nodes": "4"}},
        {"changes": {"nodes": 4.0}},
        {"nodes": 4},
    ]
    same = [("what_if", {**two, **way}) for way in ways]
    flags = [
        ({"allow_spot": True}, True),
        ({"allow_spot": "false"}, False),
        ({"allow-spot": None}, False),
    ]
    wishes = [
        ("recommend", {"runs": "two.stash.json", "options": {"samples": "1M", "epochs": 3, **flag}})
        for flag, _ in flags
    ]
    lists = (
        "recommend",
        {"runs": ["two.stash.json"], "epochs": 3, "samples": 1e6, "cloud": ["aws", "gcp"]},
    )
    answers = ask(folder, [*same, *wishes, lists])
    assert [text for failed, text in answers if failed] == []
    found = [json.loads(text) for _, text in answers]
    assert {each["forecast"]["samples_per_second"] for each in found[: len(ways)]} == {4763.9}


def test_every_tool_says_what_it_does_takes_and_answers(folder):
    async def listed():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "stash", "mcp"], cwd=folder, env=dict(os.environ)
        )
        async with Client(stdio_client(server)) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in anyio.run(listed)}
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


def test_a_folder_is_listed_and_records_are_explained(folder):
    for name in ("schema-1.fix.json", "schema-1.watch.jsonl"):
        shutil.copy(ROOT / "tests/golden" / name, folder)
    (_, listed), (_, fix), (_, watch) = ask(
        folder,
        [
            ("list", {"limit": 3}),
            ("explain", {"run": "schema-1.fix.json"}),
            ("explain", {"run": "schema-1.watch.jsonl"}),
        ],
    )
    assert len(json.loads(listed)["artefacts"]) == 3
    assert json.loads(fix)["tried"][0]["standing"] == "kept"
    assert json.loads(watch)["steps"] == 604


@pytest.mark.slow
def test_a_command_is_watched_and_ended_and_a_script_is_fixed(folder):
    (folder / "train.py").write_text(TRAIN.replace("100_000", "1_000_000"))
    (failed, watched), (unfixed, fixed) = ask(
        folder,
        [
            ("watch", {"command": "train.py", "budget": 15}),
            ("fix", {"command": ["train.py"], "budget": 20, "output": "mine.fix.json"}),
        ],
    )
    assert not failed, watched
    assert json.loads(watched)["steps"] > 0
    assert json.loads(watched)["file"] == "train.watch.jsonl"
    assert not unfixed, fixed
    assert json.loads(fixed)["file"] == "mine.fix.json"


def test_a_command_is_profiled_and_its_file_explained(folder):
    (folder / "train.py").write_text(TRAIN)
    (folder / "fails.py").write_text("raise RuntimeError('no such GPU')")
    (failed, text), (again, same), (broken, why) = ask(
        folder,
        [
            ("profile", {"command": ["train.py"], "budget": "2s"}),
            ("explain", {"run": "train.stash.json"}),
            ("profile", {"command": ["fails.py"], "budget": 2}),
        ],
    )
    assert not failed, text
    answer = json.loads(text)
    assert answer.pop("file") == "train.stash.json"
    assert answer["verdict"]["stall"] in (None, "compute")
    assert not again
    assert {**answer, "more": ""} == {**json.loads(same), "more": ""}
    assert broken
    assert json.loads(why)["error"]["code"] == "job"
    assert "no such GPU" in why
