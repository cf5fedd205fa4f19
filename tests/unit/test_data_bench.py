"""Validation of the data and compute half: what is given is not predicted, what is predicted was not fitted to."""

from __future__ import annotations


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
