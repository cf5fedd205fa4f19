"""Messages: what goes into a line comes out of it, and the artefact's records can hold what the agents tell."""

from dataclasses import MISSING, fields
from typing import get_args, get_type_hints

import pytest
from pydantic import TypeAdapter

from stash.core.errors import StashError
from stash.core.measured import Block
from stash.core.records.profile import Workload
from stash.measure.protocol import messages
from stash.measure.protocol.messages import (
    AgentMessage,
    JobFacts,
    Message,
    Payload,
    decode_message,
    encode_message,
)
from stash.measure.protocol.wire import pack_value, unpack_value

OF_THE_LAUNCHER = {
    "command",
    "name",
    "sample_disk_bytes",
    "dataset_bytes",
    "git_commit",
    "git_dirty",
}
"""Fields of ``Workload`` that no agent knows."""


def test_every_fact_of_a_job_is_a_field_of_its_workload_and_of_the_same_type():
    sent, kept = {f.name: f for f in fields(JobFacts)}, get_type_hints(Workload)
    kept = {name: kind for name, kind in kept.items() if not name.startswith(("_", "model_"))}
    missing = kept.keys() - sent.keys() - OF_THE_LAUNCHER
    assert not missing, f"no agent tells {missing}"
    assert sent.keys() <= kept.keys()
    for field_name, field in sent.items():
        if field.default is not MISSING:
            TypeAdapter(kept[field_name]).validate_python(field.default)


def test_a_message_of_another_rank_crosses_as_its_line():
    block = Block(0, "cold", 1, 2, 0.5, step_seconds=(0.25, 0.25), resident=0.0, files=3)
    payload = unpack_value(pack_value(Payload.pack(block)) + b"   ")
    assert encode_message(payload) == encode_message(block)
    assert payload.message() == block


def test_every_kind_of_message_is_known_by_one_name():
    assert len(AgentMessage.__subclasses__()) > 8
    assert set(messages.KINDS.values()) == {*AgentMessage.__subclasses__(), *get_args(Message)[1:]}


STRANGE = [
    "[",
    "7",
    '{"kind": "song"}',
    '{"number": 1}',
    '{"kind": "round", "number": 1, "seconds": 1.0, "colour": "red"}',
]


@pytest.mark.parametrize("line", STRANGE)
def test_a_line_of_another_version_is_refused(line):
    with pytest.raises(StashError, match="another version of Stash"):
        decode_message(line)
