"""Short answers: the keys that are asked for, never more than 4 KB of any document, and all of it under a handle."""

import asyncio
import json
import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.core.errors import UserError
from stash.mcp_server import command
from stash.mcp_server.brief import MAX_BYTES, Handles, pick_keys, shorten_value
from stash.mcp_server.tools import CHANGES, WISHES, AgentTools, _option_words, refuse_to_rent

LEAVES = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=3000)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=80) | st.dictionaries(st.text(max_size=40), inner),
)
DOCUMENTS = st.dictionaries(st.text(max_size=40), VALUES, max_size=200)


def whole(handles, handle, path=""):
    """Everything below a path, read piece by piece."""
    text = ""
    offset = 0
    while offset is not None:
        answer = handles.piece(handle, path, offset)
        assert len(answer.encode()) <= MAX_BYTES
        piece = json.loads(answer)
        text = text + piece["text"]
        offset = piece["next_offset"]
    return json.loads(text)


@given(DOCUMENTS)
def test_no_answer_is_longer_than_promised_and_nothing_is_lost(document):
    handles = Handles()
    answer = handles.answer(document, None)
    assert len(answer.encode()) <= MAX_BYTES
    assert whole(handles, json.loads(answer)["more"]) == document


def test_a_document_of_very_many_keys_names_some():
    handles = Handles()
    answer = json.loads(handles.answer({f"key {n} \x00": "\x00" * 50 for n in range(1000)}, None))
    assert answer["keys"][0] == "key 0 \x00"
    assert len(whole(handles, answer["more"], "key 7 \x00")) == 50


def test_only_keys_that_are_asked_for_are_told_in_their_order():
    document = {"b": [{"x": 1, "y": 2}, {"x": 3}], "a": {"z": 4}, "c": None, "d": 5}
    assert list(pick_keys(document, {"a": None, "b": ("x",), "c": ("x",), "e": None}).items()) == [
        ("a", {"z": 4}),
        ("b", [{"x": 1}, {"x": 3}]),
        ("c", None),
    ]


def test_what_is_cut_says_so():
    assert shorten_value([1, 2, 3], 2, 10) == [1, 2, "… 1 more"]
    assert shorten_value({"a": "abcdef", "b": 1.23456789, "c": True}, 9, 3) == {
        "a": "abc …",
        "b": 1.2346,
        "c": True,
    }


def test_the_latest_fifty_are_kept_and_others_are_asked_for_again():
    handles = Handles()
    for number in range(60):
        handles.answer({"number": number}, None)
    assert whole(handles, "r60") == {"number": 59}
    assert whole(handles, "r11", "number") == 10
    for handle, path in (("r10", ""), ("r60", "number/0"), ("r60", "letters")):
        with pytest.raises(UserError) as raised:
            handles.piece(handle, path, 0)
        assert raised.value.code == "handle"


def test_no_option_of_a_tool_starts_or_writes_anything():
    assert {"output", "launch", "store", "json"}.isdisjoint(CHANGES.keys() | WISHES.keys())
    assert {"nodes", "network", "batch"} <= CHANGES.keys()
    assert {"samples", "deadline", "max_dollars", "cloud"} <= WISHES.keys()


@pytest.mark.parametrize(
    "words",
    [
        *(
            "sky launch",
            "sudo -E sky x",
            "-m sky.cli",
            "nice python -m sky.cli x",
            "env A=1 sbatch x",
        ),
        *(
            "uv run modal run",
            "bash -c 'sky launch t.yaml'",
            "bash -lc 'sky launch t.py'",
            "sh -ec sbatch",
        ),
        *("env -S 'sky launch x'", "env -S'sky launch'", "env --split-string='A=1 sky launch'"),
        *("python -mstash spot run", "python3 -msky.cli launch"),
        *(
            "nice -n 10 sbatch x",
            "sudo -u me sky launch",
            "python -m torch.distributed.run -m sky.cli",
        ),
    ],
)
def test_programs_that_rent_are_refused(words):
    with pytest.raises(UserError) as raised:
        refuse_to_rent(shlex.split(words))
    assert raised.value.code == "costs_money"


@pytest.mark.parametrize(
    "words",
    [
        "train.py sky",
        "python train.py --cloud aws",
        "accelerate launch x.py -m aws",
        "-m a.b",
        "-m a.b aws",
    ],
)
def test_training_is_not(words):
    refuse_to_rent(words.split())


def test_a_profile_replaces_no_file(tmp_path):
    (tmp_path / "train.py").write_text("mine")
    with pytest.raises(UserError, match="it is there already, and nothing is replaced"):
        asyncio.run(AgentTools().profile(["train.py"], output=str(tmp_path / "train.py")))
    assert (tmp_path / "train.py").read_text() == "mine"


def test_a_flag_is_true_or_false_and_every_option_is_called_as_on_the_command_line():
    given = {"allow_spot": "true", "max_dollars": "300"}
    assert _option_words(given, WISHES) == ["--allow-spot", "--max-dollars=300"]
    assert _option_words({"allow-spot": "False"}, WISHES) == []
    with pytest.raises(UserError, match="allow_spot=yes: it is true or false"):
        _option_words({"allow_spot": "yes"}, WISHES)


def test_without_the_sdk_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    with pytest.raises(UserError, match="type `pip install 'mcp>=2'`"):
        command.mcp()
