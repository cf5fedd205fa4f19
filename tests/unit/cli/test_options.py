"""Numbers above zero, help, and torchrun's options turned into the cluster they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from stash.cli.main import app
from stash.core.errors import UserError
from stash.measure.ranks import cluster
from stash.ui.options import percent, positive


@pytest.mark.parametrize(
    ("value", "finite"),
    [(0.0, False), (-1.0, False), (float("inf"), True), (float("nan"), True), (float("nan"), False)],
)
def test_a_number_that_is_not_above_zero_is_refused_with_its_option(value: float, finite: bool) -> None:
    with pytest.raises(UserError, match=f"--budget {value:g}: it must be a number above 0"):
        positive("--budget", value, "a number above 0", finite)


def test_what_is_above_zero_is_taken() -> None:
    assert positive("--budget", 0.5) == 0.5
    assert positive("--budget", float("inf")) == float("inf")


def test_a_precision_is_given_in_per_cent_and_a_fraction_is_refused() -> None:
    assert percent("--precision", 2.0) == 0.02
    assert percent("--precision", 0.05) == 0.0005
    with pytest.raises(UserError, match=r"--precision 0\.02 would be 0\.02 % of the step.*type --precision 2$"):
        percent("--precision", 0.02)
    with pytest.raises(UserError, match="more than 0"):
        percent("--precision", 0.0)


def test_the_cluster_is_of_machines_like_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stash.measure.host.gpus.count_gpus", lambda: 8)
    found = cluster(None, 2, 1, "head:29500")
    assert (found.nproc, found.nnodes, found.node_rank, found.rdzv_endpoint) == (8, 2, 1, "head:29500")
    assert cluster(None, None, None, None, ranks=False).nproc == 1


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_screen_and_shows_flags_as_flags(columns: int) -> None:
    for words in _commands(get_command(app)):
        shown = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, [*words, "--help"])
        assert shown.exit_code == 0, words
        assert "<bool>" not in shown.output
        assert "BOOLEAN" not in shown.output
        assert max(map(len, shown.output.splitlines())) <= columns, words


def _commands(command: Any, *before: str) -> Iterator[tuple[str, ...]]:
    yield before
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, *before, name)
