"""Anybody's error in one line."""

from __future__ import annotations

from stash.core.errors import one_line


def test_an_error_of_a_library_is_one_line_without_its_source():
    error = RuntimeError("[/src/gloo/pair.cc:598] Connection closed by peer [10.0.0.2]:1234\nmore\n")
    assert one_line(error) == "Connection closed by peer [10.0.0.2]:1234"
    assert one_line(ValueError()) == "ValueError"
