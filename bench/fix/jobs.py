"""Jobs with a planted fault, each with its repair by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.fix.script import text


@dataclass(frozen=True)
class Job:
    """A fault, as settings of the script, and what a person who knows it would write instead."""

    name: str
    fault: Mapping[str, object]
    repair: Mapping[str, object] = field(default_factory=dict)
    """Empty of a job with nothing to fix."""
    knobs: tuple[str, ...] = ()
    """Of ``stash fix``, those that repair it."""

    @property
    def script(self) -> str:
        return text(self.name, **self.fault)

    @property
    def repaired_script(self) -> str:
        return text(self.name, **{**self.fault, **self.repair})


_PERSISTENT = "\n    persistent_workers=True,"


def _loaders() -> list[Job]:
    found = []
    for milliseconds in (1, 2, 4):
        for workers in (0, 1):
            name = f"samples wait {milliseconds} ms, {workers} workers"
            fault = {"sleep": milliseconds / 1e3, "num_workers": workers}
            found.append(Job(name, fault, {"num_workers": 4}, ("workers",)))
    for milliseconds in (2, 6):
        name, fault = (
            f"workers by argument, samples wait {milliseconds} ms",
            {"sleep": milliseconds / 1e3},
        )
        found.append(Job(name, {**fault, "workers": 0}, {"workers": 4}, ("workers",)))
    for milliseconds in (10, 13):
        name = f"64 samples a rank decoded again in every epoch, {milliseconds} ms each"
        fault = {"samples": 128, "noise": "", "busy": milliseconds / 1e3, "num_workers": 1}
        found.append(Job(name, {**fault, "loader": _PERSISTENT}, {}, ("cache",)))
    for milliseconds in (0.5, 1.5):
        name = f"samples work {milliseconds} ms, no workers"
        fault = {"busy": milliseconds / 1e3, "num_workers": 0}
        found.append(Job(name, fault, {"num_workers": 1}, ("workers",)))
    for workers in (8, 16):
        name = f"{workers} workers for samples that cost nothing"
        found.append(
            Job(name, {"num_workers": workers, "width": 64}, {"num_workers": 0}, ("workers",))
        )
    for layers, width in ((4, 256), (2, 1024), (12, 256), (3, 512), (6, 128)):
        name = f"a worker for samples that cost nothing, {layers} layers of {width}"
        found.append(
            Job(name, {"layers": layers, "width": width}, {"num_workers": 0}, ("workers",))
        )
    for samples in (64, 160):
        name = f"workers start again every {samples // 16} steps"
        fault = {"samples": samples, "num_workers": 1, "sleep": 0.0005}
        found.append(Job(name, fault, {"loader": _PERSISTENT}, ("persistent", "workers")))
    return found


def _exchange() -> list[Job]:
    found = []
    for layers in (8, 16, 32):
        for megabytes in (0.001, 0.05):
            name = f"{layers} layers in buckets of {megabytes} MB"
            fault = {"layers": layers, "ddp": f", bucket_cap_mb={megabytes}", "width": 128}
            found.append(Job(name, fault, {"ddp": ""}, ("bucket",)))
    for layers in (24, 48):
        name = f"{layers} layers looked through for unused ones"
        fault = {"layers": layers, "ddp": ", find_unused_parameters=True", "width": 64}
        found.append(Job(name, fault, {"ddp": ""}, ("find_unused",)))
    for times in (2, 3):
        name = f"barriers in every step, {times} of them"
        fault = {"wait": "\n        dist.barrier()" * times, "width": 64}
        found.append(Job(name, fault, {"wait": ""}, ("waits",)))
    for batches in (4, 8):
        name = f"gradients exchanged {batches} times a step"
        fault = {"accumulate": batches, "width": 512}
        found.append(Job(name, fault, {}, ("no_sync",)))
    return found


def _compute() -> list[Job]:
    found = []
    for threads in (2, 4, 8, 16):
        name = f"{threads} threads a rank on too few cores"
        fault = {"threads": f"torch.set_num_threads({threads})\n", "width": 1024, "batch": 64}
        found.append(Job(name, fault, {"threads": "torch.set_num_threads(1)\n"}, ("threads",)))
    for layers in (24, 64):
        name = f"{layers} layers updated one by one"
        fault = {"layers": layers, "width": 128, "optimizer": ", foreach=False"}
        found.append(Job(name, fault, {"optimizer": ", fused=True"}, ("fused",)))
    for width in (256,):
        name = f"gradients of {width} columns set to zero and added to"
        fault = {"width": width, "layers": 8, "zero_grad": "set_to_none=False"}
        found.append(Job(name, fault, {"zero_grad": ""}, ("set_to_none",)))
    return found


_FAULTLESS = {
    "num_workers": 0,
    "batch": 2,
    "ddp": ", gradient_as_bucket_view=True",
    "optimizer": ", fused=True",
}


def _sound() -> list[Job]:
    """As well set as two cores allow: samples that cost next to nothing are made between steps, by no worker."""
    found = []
    for layers, width in ((12, 512), (6, 512), (4, 1024), (24, 512)):
        found.append(
            Job(
                f"nothing wrong, {layers} layers of {width}",
                {**_FAULTLESS, "layers": layers, "width": width},
            )
        )
    name = "nothing wrong, the loss read in every step"
    return [*found, Job(name, {**_FAULTLESS, "width": 1024, "wait": "\n        loss.item()"})]


JOBS: tuple[Job, ...] = (*_loaders(), *_exchange(), *_compute(), *_sound())
