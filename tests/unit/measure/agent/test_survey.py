"""What the job is, learned from one or two of its steps."""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch
from torch import nn

from stash.measure.agent.climb import survey


def test_matrix_products_are_counted_forward_and_backward():
    weight = nn.Parameter(torch.randn(8, 4))
    counter = survey.FlopCounter()
    counter.begin()
    (torch.randn(16, 8) @ weight).sum().backward()
    flops = counter.end()
    assert flops == 2 * (2 * 16 * 8 * 4)  # the product, and the weight's gradient; the input needs none


def test_a_step_without_any_has_no_known_count():
    counter = survey.FlopCounter()
    assert counter.end() is None
    counter.begin()
    torch.ones(3).add(1)
    assert counter.end() is None


def test_gradients_are_told_in_the_order_in_which_they_become_ready():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    clock = survey.GradientClock(list(model.named_parameters()))
    clock.begin()
    for _ in range(2):  # an accumulated step: the last micro-batch counts
        model(torch.randn(5, 4)).sum().backward()
    rows = clock.end()
    assert [(row["name"], row["bytes"]) for row in rows] == [("1.weight", 24), ("0.weight", 48)]
    assert rows[0]["ready_seconds"] == 0.0
    assert rows[1]["ready_seconds"] > 0.0
    model(torch.randn(5, 4)).sum().backward()
    assert clock.end() == rows  # its hooks are gone


def test_without_ddp_parameters_are_numbered_as_the_optimizer_has_them():
    frozen, trained = nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([frozen, trained], lr=0.1)
    assert [name for name, _ in survey.trained_parameters(optimizer)] == ["0"]
    facts = survey.workload_facts(optimizer)
    assert (facts["parameters"], facts["parameter_bytes"], facts["precision"]) == (3, 12, "float32")


def test_parameters_that_nobody_saw_are_unknown():
    facts = survey.workload_facts(SimpleNamespace(param_groups=[]))
    assert (facts["parameters"], facts["parameter_bytes"], facts["precision"]) == (None, None, None)


def test_only_what_is_loaded_has_a_version():
    versions = survey.software()
    assert versions["torch"] == torch.__version__
    assert "deepspeed" not in versions


def test_what_runs_before_the_first_forward_pass_of_a_step_is_timed():
    clock = survey.InputClock()
    clock.begin()
    time.sleep(0.02)
    model = nn.Linear(2, 2)
    model(torch.zeros(1, 2))
    time.sleep(0.05)
    model(torch.zeros(1, 2))
    times = clock.end()
    assert times is not None
    seconds, step = times
    assert seconds >= 0.02
    assert step >= seconds + 0.05


def test_a_step_that_calls_no_module_has_no_known_input():
    clock = survey.InputClock()
    clock.begin()
    assert clock.end() is None
