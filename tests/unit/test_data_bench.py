"""Validation of the data and compute half: what is given is not predicted, what is predicted was not fitted to."""

from __future__ import annotations

import pytest

from bench.predict import cpu_sensitivity


def test_of_each_curve_two_points_are_given_and_all_others_predicted() -> None:
    # The other half of the curves is what the spread was learned from.
    found = [each.name for each in cpu_sensitivity.predictions() if each.source == "whole cores"]
    assert len(found) == 21
    assert not any(name.endswith((" with 3 cores", " with 24 cores")) for name in found)


@pytest.mark.slow
def test_no_pair_is_predicted_with_the_help_of_its_own_model() -> None:
    from bench.predict import gpus

    for first, second, own, rest in gpus._cases():
        assert own.model not in {pair.model for pair in rest}
        assert own not in gpus._same_model(first, second, own)


@pytest.mark.slow
def test_the_rooflines_errors_that_forecasts_use_are_those_that_the_command_finds(tmp_path) -> None:
    from bench.predict import gpus

    gpus.write(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == gpus.TABLE.read_text()
