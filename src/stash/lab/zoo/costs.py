"""What one sample costs in the forward pass of each workload: operations, and bytes read and written in float32.

Counted by tracing the models on PyTorch's meta device (``lab/testbed/generate.py``), which takes seconds a model and
all of torch; whoever only has to know how large a step is looks here. ``tests/unit/lab/zoo/test_zoo_costs.py`` holds
them against the models.
"""

from __future__ import annotations

from typing import NamedTuple


class SampleCost(NamedTuple):
    """Of one sample's forward pass; weights, which are read once a batch, are not in it."""

    flops: float
    moved_bytes: float


SAMPLE_COSTS: dict[str, SampleCost] = {
    "alexnet": SampleCost(1.428e09, 9.384e06),
    "resnet18": SampleCost(3.628e09, 6.112e07),
    "shufflenet_v2_x0_5": SampleCost(8.095e07, 2.449e07),
    "mobilenet_v2": SampleCost(6.015e08, 1.561e08),
    "squeezenet1_0": SampleCost(1.638e09, 7.661e07),
    "resnet50": SampleCost(8.178e09, 2.573e08),
    "vgg11": SampleCost(1.522e10, 1.321e08),
    "bert_large_qa": SampleCost(2.464e11, 1.294e09),
    "resnet10": SampleCost(1.778e09, 4.306e07),
    "resnet10_noskip": SampleCost(1.74e09, 3.955e07),
    "resnet10_nobn": SampleCost(1.778e09, 4.306e07),
    "resnet12": SampleCost(2.241e09, 5.269e07),
    "resnet12_noskip": SampleCost(2.202e09, 4.918e07),
    "resnet12_nobn": SampleCost(2.241e09, 5.269e07),
    "resnet16": SampleCost(3.166e09, 5.992e07),
    "resnet16_noskip": SampleCost(3.127e09, 5.641e07),
    "resnet16_nobn": SampleCost(3.166e09, 5.992e07),
    "resnet18_noskip": SampleCost(3.59e09, 5.761e07),
    "resnet18_nobn": SampleCost(3.628e09, 6.112e07),
    "resnet34": SampleCost(7.328e09, 9.123e07),
    "resnet34_noskip": SampleCost(7.289e09, 8.772e07),
    "resnet34_nobn": SampleCost(7.328e09, 9.123e07),
    "resnet50_noskip": SampleCost(7.459e09, 2.328e08),
    "resnet50_nobn": SampleCost(8.178e09, 2.573e08),
    "resnet101": SampleCost(1.56e10, 3.802e08),
    "resnet101_noskip": SampleCost(1.488e10, 3.557e08),
    "resnet101_nobn": SampleCost(1.56e10, 3.802e08),
    "resnet152": SampleCost(2.303e10, 5.319e08),
    "resnet152_noskip": SampleCost(2.231e10, 5.074e08),
    "resnet152_nobn": SampleCost(2.303e10, 5.319e08),
    "vgg11_bn": SampleCost(1.522e10, 1.915e08),
    "vgg13": SampleCost(2.262e10, 2.091e08),
    "vgg13_bn": SampleCost(2.262e10, 3.071e08),
    "vgg16": SampleCost(3.094e10, 2.3e08),
    "vgg16_bn": SampleCost(3.094e10, 3.384e08),
    "vgg19": SampleCost(3.926e10, 2.509e08),
    "vgg19_bn": SampleCost(3.926e10, 3.697e08),
    "bert_base_qa": SampleCost(7.067e10, 4.896e08),
    "vit_b_16": SampleCost(3.513e10, 2.505e08),
    "m5": SampleCost(1.391e08, 9.584e06),
    "dlrm": SampleCost(9.721e05, 2.919e04),
}
"""By workload. GPT-2 is not among them: its model looks at values, and on the meta device there are none."""
