"""Every workload of the zoo as a frozen specification, found by name, with its costs and sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from stash.core.errors import UserError
from stash.core.units import nearest
from stash.lab.zoo.synthesis import WORDS

if TYPE_CHECKING:
    from torch import nn

# Registry --------------------------------------------------------------------------------------------------
# Every workload of the zoo as a frozen specification, and the look-up by name.
#
# Knows what each workload is, what it needs and how large it is. Does not know how a model is built: builders are
# named, and imported (with torch) only when ``WorkloadSpec.build`` is called.

DEEP_RESIDUAL = "He et al. 2016, arXiv 1512.03385"
VGG = "Simonyan and Zisserman 2015, arXiv 1409.1556"
STUDY = "feature study"
"""The group of the paper's study of macroscopic features: depth, residual links, batch norm."""


@dataclass(frozen=True)
class WorkloadSpec:
    """One model with its loss, optimizer and kind of data; weights are random."""

    name: str
    group: str
    """``paper`` (the grid of ICDCS 2023), ``feature study`` or ``more``."""
    kind: str
    """Kind of data it reads: ``images``, ``text``, ``audio`` or ``clicks``."""
    builder: str
    """``module:function`` returning the model."""
    arguments: dict[str, Any] = field(repr=False)
    parameters: int
    """Trainable parameters at the default input size; gradients are four bytes each."""
    loss: str
    """Name of a function in ``stash.lab.zoo.feed``: (model, batch) to a scalar."""
    batch: int
    """Default samples per device and step."""
    optimizer: str
    """``sgd`` (momentum 0.9) or ``adamw``."""
    lr: float
    about: str
    source: str
    classes: int = 0
    """Labels the model distinguishes; images and audio only."""
    sequence_length: int = 0
    """Tokens per sample; text only."""
    longest_sequence: int = 0
    """Tokens its position embedding has room for; text only."""
    vocabulary: int = 0
    """Token ids the model knows: 0 up to this; text only."""
    sized: bool = False
    """True if the model's shape depends on ``image_size``."""
    smallest_image: int = 32
    """Pixels per side below which its feature maps vanish; images only."""

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one float32 gradient of the whole model: what every step must all-reduce."""
        return 4 * self.parameters

    def build(self, image_size: int = 224) -> nn.Module:
        """The model with random weights; raises UserError if a package or a size does not fit it."""
        if self.kind == "images" and image_size < self.smallest_image:
            raise UserError(
                f"{self.name} needs images of at least {self.smallest_image} pixels, not {image_size}; "
                f"use --image-size {self.smallest_image} or more"
            )
        module, function = self.builder.split(":")
        size = {"image_size": image_size} if self.sized else {}
        model: nn.Module = getattr(import_module(module), function)(**self.arguments, **size)
        return model


def workload(name: str) -> WorkloadSpec:
    """The workload called ``name``; raises UserError naming the nearest ones."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    near = nearest(name, WORKLOADS)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"no workload is called {name!r}; {hint}`stash zoo` lists all {len(WORKLOADS)}")


def traits(name: str) -> tuple[bool | None, bool | None]:
    """Whether a model of the feature study has residual links, and batch norm; ``None`` of all others."""
    spec = WORKLOADS.get(name)
    if spec is None:
        return None, None
    if "residual" in spec.arguments:
        return bool(spec.arguments["residual"]), bool(spec.arguments["batch_norm"])
    return (False, name.endswith("_bn")) if name.startswith("vgg") else (None, None)


def feature_study() -> tuple[str, ...]:
    """The models of the paper's feature study, those that its grid has too included."""
    return tuple(name for name in WORKLOADS if traits(name) != (None, None))


def _image(name: str, group: str, parameters: int, about: str, source: str, **changes: Any) -> WorkloadSpec:
    settings: dict[str, Any] = {
        "builder": "stash.lab.zoo.vision:torchvision_model",
        "arguments": {"name": name},
        "batch": 32,
        "optimizer": "sgd",
        "lr": 0.1,
    }
    return WorkloadSpec(
        name=name,
        group=group,
        kind="images",
        parameters=parameters,
        loss="classification",
        classes=1000,
        about=about,
        source=source,
        **(settings | changes),
    )


def _resnet(depth: int, variant: str, parameters: int) -> WorkloadSpec:
    about = {"": "", "noskip": ", no residuals", "nobn": ", no batch norm"}
    return _image(
        f"resnet{depth}_{variant}" if variant else f"resnet{depth}",
        "paper" if depth in (18, 50) and not variant else STUDY,
        parameters,
        f"ResNet-{depth}{about[variant]}",
        DEEP_RESIDUAL + ("; paper's feature study" if variant else ""),
        builder="stash.lab.zoo.vision:resnet",
        arguments={"depth": depth, "residual": variant != "noskip", "batch_norm": variant != "nobn"},
        lr=0.01 if variant == "nobn" else 0.1,
    )


def _vgg(depth: int, batch_norm: bool, parameters: int) -> WorkloadSpec:
    return _image(
        f"vgg{depth}_bn" if batch_norm else f"vgg{depth}",
        "paper" if depth == 11 and not batch_norm else STUDY,
        parameters,
        f"VGG-{depth} with batch norm" if batch_norm else f"VGG-{depth}",
        VGG,
        lr=0.01,
    )


def _transformer(name: str, group: str, builder: str, parameters: int, **changes: Any) -> WorkloadSpec:
    return WorkloadSpec(
        name=name,
        group=group,
        kind="text",
        builder=f"stash.lab.zoo.models:{builder}",
        parameters=parameters,
        optimizer="adamw",
        lr=5e-5,
        **changes,
    )


def _paper_images() -> Iterator[WorkloadSpec]:
    yield _image(
        "alexnet", "paper", 61_100_840, "AlexNet, dense layers",
        "Krizhevsky 2014, arXiv 1404.5997", lr=0.01, smallest_image=63,
    )  # fmt: skip
    yield _resnet(18, "", 11_689_512)
    yield _image(
        "shufflenet_v2_x0_5", "paper", 1_366_792, "ShuffleNet v2, half width",
        "Ma et al. 2018, arXiv 1807.11164",
    )  # fmt: skip
    yield _image(
        "mobilenet_v2", "paper", 3_504_872, "MobileNet v2, depthwise",
        "Sandler et al. 2018, arXiv 1801.04381", lr=0.045,
    )  # fmt: skip
    yield _image(
        "squeezenet1_0", "paper", 1_248_424, "SqueezeNet, few gradients",
        "Iandola et al. 2016, arXiv 1602.07360", lr=0.01,
    )  # fmt: skip
    yield _resnet(50, "", 25_557_032)
    yield _vgg(11, False, 132_863_336)


_RESNETS = {
    10: (5_418_792, 5_244_968, 5_413_032),
    12: (5_492_776, 5_318_952, 5_486_760),
    16: (6_968_872, 6_795_048, 6_961_320),
    18: (11_689_512, 11_515_688, 11_679_912),
    34: (21_797_672, 21_623_848, 21_780_648),
    50: (25_557_032, 22_780_456, 25_503_912),
    101: (44_549_160, 41_772_584, 44_443_816),
    152: (60_192_808, 57_416_232, 60_041_384),
}
"""Depth to the parameters of the plain, the no-skip and the no-batch-norm model."""
_VGGS = {
    11: (132_863_336, 132_868_840),
    13: (133_047_848, 133_053_736),
    16: (138_357_544, 138_365_992),
    19: (143_667_240, 143_678_248),
}
"""Depth to the parameters without and with batch norm."""


def _feature_study() -> Iterator[WorkloadSpec]:
    for depth, counts in _RESNETS.items():
        for variant, parameters in zip(("", "noskip", "nobn"), counts, strict=True):
            if variant or depth not in (18, 50):
                yield _resnet(depth, variant, parameters)
    for depth, (plain, normalised) in _VGGS.items():
        if depth != 11:
            yield _vgg(depth, False, plain)
        yield _vgg(depth, True, normalised)


def _others() -> Iterator[WorkloadSpec]:
    bert, squad = "Devlin et al. 2019, arXiv 1810.04805", "question_answering"
    yield _transformer(
        "bert_large_qa", "paper", "bert", 334_094_338, arguments={"size": "large"}, loss=squad, batch=4,
        about="BERT large, SQuAD shape", source=bert,
        sequence_length=384, longest_sequence=512, vocabulary=30522,
    )  # fmt: skip
    yield _transformer(
        "bert_base_qa", "more", "bert", 108_893_186, arguments={"size": "base"}, loss=squad, batch=8,
        about="BERT base, SQuAD shape", source=bert,
        sequence_length=384, longest_sequence=512, vocabulary=30522,
    )  # fmt: skip
    yield _transformer(
        "gpt2_small", "more", "gpt2", 124_439_808, arguments={"size": "small"}, loss="next_token", batch=4,
        about="GPT-2, 12 layers", source="Radford et al. 2019",
        sequence_length=1024, longest_sequence=1024, vocabulary=50257,
    )  # fmt: skip
    yield _image(
        "vit_b_16", "more", 86_567_656, "vision transformer, 16 px",
        "Dosovitskiy et al. 2021, arXiv 2010.11929",
        builder="stash.lab.zoo.vision:vit", arguments={"name": "vit_b_16"}, optimizer="adamw", lr=3e-4,
        sized=True,
    )  # fmt: skip
    yield WorkloadSpec(
        "m5", "more", "audio", "stash.lab.zoo.models:M5", {}, 571_939, "classification", 128, "sgd", 0.01,
        "M5, words from raw waves", "Dai et al. 2016, arXiv 1610.00087", classes=WORDS,
    )  # fmt: skip
    yield WorkloadSpec(
        "dlrm", "more", "clicks", "stash.lab.zoo.models:DLRM", {}, 24_205_825, "click_through", 2048, "sgd", 0.01,
        "DLRM, embeddings dominate", "Naumov et al. 2019, arXiv 1906.00091",
    )  # fmt: skip


def _all() -> dict[str, WorkloadSpec]:
    found = [*_paper_images(), *_others(), *_feature_study()]
    found.sort(key=lambda item: ("paper", STUDY, "more").index(item.group))  # Stable within a group.
    return {item.name: item for item in found}


WORKLOADS: dict[str, WorkloadSpec] = _all()
"""Every workload by name, in the order of the listing."""


# Costs -----------------------------------------------------------------------------------------------------
# What one sample costs in the forward pass of each workload: operations, and bytes read and written in float32.
#
# Counted by tracing the models on PyTorch's meta device (``lab/testbed/generate.py``), which takes seconds a model
# and all of torch; whoever only has to know how large a step is looks here.
# ``tests/unit/lab/zoo/test_zoo_costs.py`` holds them against the models.


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


# Sizes -----------------------------------------------------------------------------------------------------
# How many trained tensors each workload of the zoo has: every one is a gradient of its own.
#
# Counted from the models as they are built, and held against them by a test, so that nobody has to build one to
# know.

_RESNETS_SIZES = {
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
_VGGS_SIZES = {11: (22, 38), 13: (26, 46), 16: (32, 58), 19: (38, 70)}
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
        for depth, counts in _RESNETS_SIZES.items()
        for variant, count in zip(("", "_noskip", "_nobn"), counts, strict=True)
    },
    **{
        f"vgg{depth}{variant}": count
        for depth, counts in _VGGS_SIZES.items()
        for variant, count in zip(("", "_bn"), counts, strict=True)
    },
}
"""By workload's name."""
