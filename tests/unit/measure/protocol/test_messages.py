"""Messages: what goes into a line comes out of it, and the artefact's records can hold what the agents tell."""

from typing import get_args

import pytest

from stash.core.errors import StashError
from stash.core.measured import Block
from stash.measure.protocol import messages
from stash.measure.protocol.messages import (
    AgentMessage,
    Message,
    Payload,
    decode_message,
    encode_message,
)
from stash.measure.protocol.wire import pack_value, unpack_value


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
