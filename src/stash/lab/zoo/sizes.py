"""How many trained tensors each workload of the zoo has: every one is a gradient of its own.

Counted from the models as they are built, and held against them by a test, so that nobody has to build one to know.
"""

from __future__ import annotations

from collections.abc import Mapping

_RESNETS = {
    10: (38, 29, 14),
    12: (44, 35, 16),
    16: (56, 47, 20),
    18: (62, 53, 22),
    34: (110, 101, 38),
    50: (161, 149, 55),
    101: (314, 302, 106),
    152: (467, 455, 157),
}
"""Depth to the tensors of the plain, the no-skip and the no-batch-norm model."""
_VGGS = {11: (22, 38), 13: (26, 46), 16: (32, 58), 19: (38, 70)}
"""Depth to the tensors without and with batch norm."""

TRAINED_TENSORS: Mapping[str, int] = {
    "alexnet": 16,
    "shufflenet_v2_x0_5": 170,
    "mobilenet_v2": 158,
    "squeezenet1_0": 52,
    "bert_large_qa": 391,
    "bert_base_qa": 199,
    "gpt2_small": 148,
    "vit_b_16": 152,
    "m5": 18,
    "dlrm": 40,
    **{
        f"resnet{depth}{variant}": count
        for depth, counts in _RESNETS.items()
        for variant, count in zip(("", "_noskip", "_nobn"), counts, strict=True)
    },
    **{
        f"vgg{depth}{variant}": count
        for depth, counts in _VGGS.items()
        for variant, count in zip(("", "_bn"), counts, strict=True)
    },
}
"""By workload's name."""
