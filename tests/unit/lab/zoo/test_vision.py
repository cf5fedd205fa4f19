"""Image models: residual networks without what their names say."""

import pytest
import torch
from torch import nn

from stash.lab.zoo.registry import workload


def on_meta(name):
    with torch.device("meta"):
        return workload(name).build()


@pytest.mark.parametrize("depth", [10, 18, 50])
def test_variants_lack_what_their_name_says(depth):
    plain, noskip, nobn = (on_meta(f"resnet{depth}{suffix}") for suffix in ("", "_noskip", "_nobn"))

    def norms(model):
        return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())

    def projections(model):
        return sum("downsample" in name for name, _ in model.named_parameters())

    assert norms(plain) > 0
    assert norms(noskip) > 0
    assert norms(nobn) == 0
    assert projections(plain) > 0
    assert projections(nobn) > 0
    assert projections(noskip) == 0


def test_without_links_a_block_with_zero_weights_passes_nothing_on():
    for name, passes in (("resnet10", True), ("resnet10_noskip", False)):
        block = workload(name).build().layer1[0].eval()
        for parameter in block.parameters():
            nn.init.zeros_(parameter)
        assert bool(block(torch.ones(1, 64, 8, 8)).any()) is passes
