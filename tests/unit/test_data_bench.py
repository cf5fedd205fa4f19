"""Validation of the data and compute half: what is given is not predicted, what is predicted was not fitted to."""

from __future__ import annotations

import pytest

from bench.predict import cpu_sensitivity


def test_of_each_curve_two_points_are_given_and_all_others_predicted() -> None:
    # The other half of the curves is what the spread was learned from.
    found = [each.name for each in cpu_sensitivity.predictions() if each.source == "whole cores"]
    assert len(found) == 21
    assert not any(name.endswith((" with 3 cores", " with 24 cores")) for name in found)


def test_no_pair_is_predicted_with_the_help_of_its_own_model() -> None:
    from bench.predict import gpus

    for case in gpus.cases():
        kept = {name: [row for row in gpus.speeds() if not out(case, row)] for name, out in gpus.LEFT_OUT.items()}
        assert case.second.key not in {row.key for row in kept["the model"]}
        assert case.second.gpu not in {row.gpu for row in kept["the GPU"]}
        assert (case.second.key, case.second.gpu) not in {(row.key, row.gpu) for row in kept["the model on that GPU"]}
        both = {row.key for row in kept["the model and the GPU"]}, {row.gpu for row in kept["the model and the GPU"]}
        assert case.second.key not in both[0]
        assert case.second.gpu not in both[1]


@pytest.mark.slow
def test_the_rooflines_errors_that_forecasts_use_are_those_that_the_command_finds(tmp_path) -> None:
    from bench.predict import gpus

    gpus.write(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == gpus.TABLE.read_text()
