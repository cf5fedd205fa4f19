"""How fast a device trains a workload by a profile of the user's own, on that GPU or on another one.

Takes the profile's compute, so nothing of its stalls; on another GPU it takes as many times as long as
``derive/predict/compute/ratios.py`` says. Knows nothing of testbeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.base.errors import UserError
from stash.base.records import Profile
from stash.derive.predict.compute.ratios import time_ratio
from stash.derive.stalls import attribute
from stash.keep.catalog.facts import GpuFacts

_PRECISIONS = {"fp32": "fp32", "fp16": "amp"}


@dataclass(frozen=True)
class DeviceSpeed:
    """Of one device, and by whose word."""

    samples_per_second: float
    said: str


@dataclass(frozen=True)
class CalibratingProfile:
    """A profile that tells how fast a workload is."""

    path: str
    """As the study file has it."""
    profile: Profile
    gpu: GpuFacts | None
    """That it was taken on; ``None`` if on CPUs, or on a GPU that the catalog does not know."""

    def speed(self, workload: str, gpus: Sequence[GpuFacts], precision: str) -> DeviceSpeed:
        """On the first of ``gpus``, which are variants of one model; raises UserError if the profile cannot tell."""
        batch, compute = self.profile.workload.batch, attribute(self.profile).stall("compute")
        if not batch or compute is None:
            raise UserError(f"{self.path} does not tell its batch and compute, so nothing can be calibrated by it")
        if self.gpu is None:
            raise UserError(f"{self.path} was taken on no GPU that the catalog knows, so no GPU's speed follows")
        own = next((gpu for gpu in gpus if gpu.name == self.gpu.name), gpus[0])
        ratio = time_ratio(self.gpu, own, workload, batch, _PRECISIONS[precision])
        if ratio is None:
            raise UserError(f"nothing tells how {own.name} compares with the {self.gpu.name} of {self.path}")
        value = batch / (compute.time.value * ratio.value)
        how = "" if own.name == self.gpu.name else f"; it takes {ratio.value:.2g} times as long ({ratio.source})"
        said = f"{value:.4g} samples/s, from {self.path}, measured at batch {batch} on {self.gpu.name}{how}"
        return DeviceSpeed(value, f"{workload} on {own.name}: {said}")
