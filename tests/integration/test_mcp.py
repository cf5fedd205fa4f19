"""``stash mcp`` asked by the SDK's own client, over standard input and output: 30 questions about ten artefacts."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
Answer = dict[str, Any]
Question = tuple[str, str, dict[str, Any], Callable[[Answer], Any], Any]


def stall(name: str, answer: Answer, key: str = "seconds") -> Any:
    return next(each[key] for each in answer["stalls"] if each["name"] == name)


def line(name: str, answer: Answer) -> Answer:
    return next(each for each in answer["lines"] if each["name"] == name)


QUESTIONS: list[Question] = [
    (
        "What is the largest stall?",
        "explain",
        {"run": "one"},
        lambda a: a["verdict"]["stall"],
        "interconnect",
    ),
    ("How long is a step?", "explain", {"run": "one"}, lambda a: a["step_seconds"], 0.176),
    (
        "How much of it is compute?",
        "explain",
        {"run": "one"},
        lambda a: stall("compute", a, "share"),
        0.5682,
    ),
    (
        "What is hidden behind it?",
        "explain",
        {"run": "one"},
        lambda a: a["surfacing"][0]["appears"],
        "prep",
    ),
    (
        "Why is network unknown?",
        "explain",
        {"run": "one"},
        lambda a: a["skipped"][1]["why"],
        "one node",
    ),
    (
        "How many machines took part?",
        "explain",
        {"run": "two"},
        lambda a: (a["nodes"], a["world_size"]),
        (2, 4),
    ),
    (
        "What does the network cost a step?",
        "explain",
        {"run": "two"},
        lambda a: stall("network", a),
        0.03,
    ),
    (
        "How many MB a step?",
        "explain",
        {"run": "two"},
        lambda a: round(a["communication"]["bytes"] / 1e6),
        102,
    ),
    (
        "How many workers would do?",
        "what_if",
        {"run": "two", "changes": {"workers": "7"}},
        lambda a: a["data"]["workers_to_hide_prep"],
        6,
    ),
    (
        "How fast are four nodes?",
        "what_if",
        {"run": "two", "changes": {"nodes": "4"}},
        lambda a: a["forecast"]["samples_per_second"],
        4782.7,
    ),
    (
        "And what limits them?",
        "what_if",
        {"run": "two", "changes": {"nodes": "4"}},
        lambda a: a["next"],
        "network",
    ),
    (
        "What should I do first?",
        "explain",
        {"run": "squeezenet"},
        lambda a: a["verdict"]["next_steps"][0].startswith("Make samples cheaper to prepare"),
        True,
    ),
    (
        "Is fetch a problem?",
        "explain",
        {"run": "squeezenet"},
        lambda a: stall("fetch", a, "within_noise"),
        True,
    ),
    (
        "What can its loader deliver?",
        "explain",
        {"run": "squeezenet"},
        lambda a: a["rates"]["prep"],
        634.7,
    ),
    (
        "What if no worker loads?",
        "what_if",
        {"run": "squeezenet", "changes": {"workers": "0"}},
        lambda a: a["forecast"]["step_seconds"]["value"],
        0.23846,
    ),
    (
        "Is prep < 15 %?",
        "check",
        {"run": "squeezenet", "most": ["prep=15%"]},
        lambda a: a["verdict"],
        "cannot tell",
    ),
    (
        "Does it reach 60 samples/s on two ranks?",
        "check",
        {"run": "squeezenet", "least": ["samples/s=60"], "require": ["ranks=2"]},
        lambda a: a["verdict"],
        "passes",
    ),
    (
        "What is wrong here?",
        "explain",
        {"run": "slow-net"},
        lambda a: a["verdict"]["stall"],
        "network",
    ),
    (
        "Is its prep real?",
        "explain",
        {"run": "slow-net"},
        lambda a: stall("prep", a, "within_noise"),
        True,
    ),
    (
        "What got slower?",
        "compare",
        {"before": "fast-net", "after": "slow-net"},
        lambda a: [x["name"] for x in a["lines"] if x["verdict"] == "slower"],
        ["network", "step", "samples/s"],
    ),
    (
        "By how much?",
        "compare",
        {"before": "fast-net", "after": "slow-net"},
        lambda a: line("step", a)["change"]["value"],
        0.73339,
    ),
    (
        "Did compute change?",
        "compare",
        {"before": "fast-net", "after": "slow-net"},
        lambda a: line("compute", a)["verdict"],
        "no difference shown",
    ),
    (
        "May I merge this?",
        "check",
        {"run": "slow-net", "baseline": "fast-net", "slower": ["5%"]},
        lambda a: a["verdict"],
        "fails",
    ),
    (
        "Would a faster network help?",
        "what_if",
        {"run": "slow-net", "changes": {"network": "1600mbit"}},
        lambda a: (
            a["forecast"]["step_seconds"]["low"] < 0.1565 < a["forecast"]["step_seconds"]["high"]
        ),
        True,
    ),
    (
        "And what is it here?",
        "explain",
        {"run": "slow-disk"},
        lambda a: a["verdict"]["stall"],
        "fetch",
    ),
    (
        "Which disk would do?",
        "explain",
        {"run": "slow-disk"},
        lambda a: "32.7 MB/s" in a["verdict"]["next_steps"][1],
        True,
    ),
    (
        "Is this machine what I pay for?",
        "explain",
        {"run": "probe"},
        lambda a: [each["name"] for each in a["findings"][:2]],
        ["cpu-limit", "gpu-count"],
    ),
    (
        "What was to be rented, for how much?",
        "explain",
        {"run": "plan"},
        lambda a: (a["chosen"], a["choices"][0]["dollars"]["value"]),
        ("1 × g5.48xlarge", 337.6),
    ),
    (
        "Which spot machines, and in time?",
        "explain",
        {"run": "fleet"},
        lambda a: (a["workers"], a["p_deadline"]),
        ({"p3.2xlarge": 2}, 0.93964),
    ),
    (
        "Who replaced the server that was lost?",
        "explain",
        {"run": "spotlog"},
        lambda a: {each["gone"]: each["successor"] for each in a["takeovers"]}["server1"],
        "server2",
    ),
]
TRAIN = """
import torch
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(256, 64)).sum().backward()
    optimizer.step()
"""


def ask(folder: Path, calls: list[tuple[str, dict[str, Any]]]) -> list[tuple[bool, str]]:
    """Whether each call failed, and its answer, of one server that is started in ``folder``."""

    async def asked() -> list[tuple[bool, str]]:
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


def named(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same with files for artefacts."""
    return {
        key: f"{value}{SUFFIXES.get(value, '.stash.json')}"
        if isinstance(value, str) and value in ARTEFACTS
        else value
        for key, value in arguments.items()
    }


def test_thirty_questions_about_ten_artefacts_are_answered(folder):
    assert len(QUESTIONS) == 30
    assert {
        v for _, _, given, _, _ in QUESTIONS for v in given.values() if isinstance(v, str)
    } == set(ARTEFACTS)
    answers = ask(folder, [(tool, named(given)) for _, tool, given, _, _ in QUESTIONS])
    wrong = []
    for (question, tool, given, read, expected), (failed, text) in zip(
        QUESTIONS, answers, strict=True
    ):
        found = text if failed else read(json.loads(text))
        right = found == (
            pytest.approx(expected, rel=1e-4) if isinstance(expected, float) else expected
        )
        if failed or not right or len(text.encode()) > MAX_BYTES:
            wrong.append(f"{question} {tool} {given}: {found!r}, and not {expected!r}")
    assert wrong == []


def test_errors_have_codes_and_nothing_that_costs_money_is_started(folder):
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("explain", {"run": "nothing.stash.json"}, "artefact_missing"),
        ("explain", {"run": "--help"}, "artefact_missing"),
        (
            "compare",
            {"before": "one.stash.json", "after": "squeezenet.stash.json"},
            "different_jobs",
        ),
        ("compare", {"before": "one.stash.json", "after": "one.stash.json"}, "same_run"),
        ("explain", {"run": "one.stash.json", "brief": True}, "usage"),
        ("explain", {"run": 7}, "usage"),
        ("explain", {}, "usage"),
        ("list", {"limit": {"n": 1}}, "usage"),
        ("forecast", {"run": "one.stash.json"}, "usage"),
        ("explain", {"run": "https://attacker.invalid/x.stash.json"}, "usage"),
        ("compare", {"before": "one.stash.json", "after": "s3://bucket/x.stash.json"}, "usage"),
        ("check", {"run": "one.stash.json", "baseline": "gs://b/x", "slower": ["5%"]}, "usage"),
        ("recommend", {"runs": ["filecache::http://attacker.invalid/x"]}, "usage"),
        (
            "what_if",
            {"run": "one.stash.json", "changes": {"cluster": "https://attacker.invalid/x"}},
            "usage",
        ),
        ("list", {"folder": "http://attacker.invalid/"}, "usage"),
        ("profile", {"command": ["train.py"], "output": "s3://bucket/x.stash.json"}, "usage"),
        ("explain", {"run": "pipe.stash.json"}, "artefact"),
        ("explain", {"run": "/dev/zero"}, "artefact"),
        ("fix", {"command": ["sky", "launch", "job.yaml"]}, "costs_money"),
        ("watch", {"command": "sbatch job.sh"}, "costs_money"),
        ("check", {"run": "one.stash.json"}, "usage"),
        ("what_if", {"run": "plan.plan.json", "changes": {"nodes": "2"}}, "artefact_kind"),
        ("what_if", {"run": "one.stash.json", "changes": {"network": "10 gbots"}}, "unit"),
        ("what_if", {"run": "one.stash.json", "changes": {"output": "x.html"}}, "usage"),
        (
            "recommend",
            {"runs": ["two.stash.json"], "options": {"samples": "1M", "launch": "sky"}},
            "usage",
        ),
        ("profile", {"command": ["bash", "-c", "cd x && /usr/bin/sbatch job.sh"]}, "costs_money"),
        ("profile", {"command": []}, "usage"),
        ("profile", {"command": ["nothing.py"]}, "usage"),
        ("profile", {"command": ["train.py"], "budget": 1e9}, "usage"),
        ("profile", {"command": ["train.py"], "budget": "20m"}, "usage"),
        ("profile", {"command": ["train.py"], "budget": "2x"}, "usage"),
    ]
    os.mkfifo(folder / "pipe.stash.json")
    before = set(folder.iterdir())
    long_name = ("explain", {"run": "x" * 100_000})
    (refused, long_answer), *answers = ask(
        folder, [long_name, *((tool, given) for tool, given, _ in calls)]
    )
    assert refused
    assert json.loads(long_answer)["error"]["code"] in {"failed", "usage"}
    assert all(failed for failed, _ in answers)
    assert [json.loads(text)["error"]["code"] for _, text in answers] == [
        code for _, _, code in calls
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
    assert {each["forecast"]["samples_per_second"] for each in found[: len(ways)]} == {4782.7}


def test_every_tool_says_what_it_does_takes_and_answers(folder):
    async def listed() -> Any:
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
        == "N: Machines."
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
