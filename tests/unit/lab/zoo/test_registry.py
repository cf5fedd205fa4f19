"""The zoo's workloads: all there, as large as they claim, and each learns."""

import pytest
import torch
from torch.utils.data import default_collate

from stash.core.errors import UserError
from stash.lab.zoo.feed import LOSSES, Synthetic
from stash.lab.zoo.registry import WORKLOADS, workload

PAPER = {
    "alexnet",
    "resnet18",
    "shufflenet_v2_x0_5",
    "mobilenet_v2",
    "squeezenet1_0",
    "resnet50",
    "vgg11",
    "bert_large_qa",
}
TRAINED = [
    "squeezenet1_0",
    "mobilenet_v2",
    "shufflenet_v2_x0_5",
    "resnet18",
    "vgg11_bn",
    "m5",
    "dlrm",
]


def on_meta(name):
    with torch.device("meta"):
        return workload(name).build()


def test_the_paper_s_grid_is_complete():
    assert {name for name, item in WORKLOADS.items() if item.group == "paper"} == PAPER


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_has_as_many_parameters_as_the_registry_says(name):
    model = on_meta(name)
    assert (
        sum(p.numel() for p in model.parameters() if p.requires_grad) == WORKLOADS[name].parameters
    )
    assert WORKLOADS[name].gradient_bytes == 4 * WORKLOADS[name].parameters


@pytest.mark.parametrize("name", TRAINED)
def test_a_workload_learns_from_a_tiny_batch(name):
    item = workload(name)
    model = item.build(image_size=64).train()
    loss = LOSSES[item.kind](model, default_collate(Synthetic(item, 2, image_size=64).samples[:2]))
    loss.backward()
    assert torch.isfinite(loss)
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    ("typed", "meant"), [("resnet5O", "resnet50"), ("BERT_base", "bert_base_qa")]
)
def test_an_unknown_workload_suggests_the_nearest(typed, meant):
    with pytest.raises(UserError, match=f"did you mean .*{meant}"):
        workload(typed)


def test_an_image_size_that_does_not_fit_is_explained():
    with pytest.raises(UserError, match="at least 63 pixels"):
        workload("alexnet").build(image_size=32)
