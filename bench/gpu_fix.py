"""What ``stash fix`` promises of jobs on one GPU against what it brings: the check *fix* of ``bench/gpu.py``.

Each job is an ordinary training script with its settings as literals. It is given to ``stash fix`` as a user types
it; then it and the patched one run by themselves, without Stash, in turns, and time their own steps. What no patch
writes is written as the page says to.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from bench.gpu_checks import Ground, Row, run

SCRIPT = '''"""{name}"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
args = parser.parse_args()
device = torch.device("{device}")


class Pictures(Dataset):
    """Pictures of noise as JPEG files in memory, decoded and scaled by the processor."""

    def __init__(self):
        numbers = np.random.default_rng(0)
        self.files = []
        for _ in range(64):
            coarse = numbers.integers(0, 255, (40, 40, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(coarse).resize(({pixels}, {pixels})).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % 64])).convert("RGB").resize(({side}, {side}))
        return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255, index % 10


class Words(Dataset):
    """Sequences that cost nothing to make."""

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        return torch.arange(index, index + 128) % 1000, index % 10


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, {width})
        layer = nn.TransformerEncoderLayer({width}, 8, 4 * {width}, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, {layers}, enable_nested_tensor=False)
        self.head = nn.Linear({width}, 10)

    def forward(self, words):
        return self.head(self.layers(self.words(words)).mean(1))


def convolutions():
    parts = [nn.Conv2d(3, {width}, 7, 2, 3), nn.BatchNorm2d({width}), nn.ReLU()]
    for _ in range({layers}):
        parts += [nn.Conv2d({width}, {width}, 3, 1, 1), nn.BatchNorm2d({width}), nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear({width}, 10))


torch.manual_seed(0)
loader = DataLoader({data}(), batch_size={batch}, shuffle=True, drop_last=True{loader})
model = {model}().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4{optimizer})
step, took, total = 0, [], 0.0
while step < args.steps:
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model({copy}), labels.to(device{blocking}))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1{each}
        if step in (args.steps // 4, args.steps):
            if device.type == "cuda":
                torch.cuda.synchronize()
            took.append(time.monotonic())
        if step == args.steps:
            break
print("seconds a step", (took[-1] - took[0]) / (args.steps - args.steps // 4))
'''
_WAITS = "\n        torch.cuda.synchronize()\n        total += loss.item()"
_SET: Mapping[str, object] = {
    "copy": "inputs.to(device, non_blocking=True)",
    "blocking": ", non_blocking=True",
    "each": "",
    "optimizer": "",
    "pixels": 320,
    "side": 224,
    "loader": ", num_workers=8, pin_memory=True, persistent_workers=True",
}
_PICTURES = {"data": "Pictures", "model": "convolutions", "width": 64, "layers": 8, "batch": 64}
_WORDS = {"data": "Words", "model": "Reader", "width": 512, "layers": 6, "batch": 64}
_SMALL = {"width": 16, "layers": 2, "batch": 8, "pixels": 64, "side": 32}
"""Of a rehearsal on a CPU."""
_BY_HAND: Mapping[str, tuple[str, str]] = {
    "item": ("loss.item()", "loss.detach()"),
    "bfloat16": (
        "        loss = ",
        "        with torch.autocast(device.type, torch.bfloat16):\n            loss = ",
    ),
}
"""What a person writes where no patch does, by the name of the change: text of the script, and what replaces it."""
_BUDGETS, _SECONDS = 24, 5.0
"""Times a profile's seconds that a search may take; of a run without Stash, about."""


@dataclass(frozen=True)
class Job:
    """A fault; the settings of its script, and words of the command line."""

    name: str
    settings: Mapping[str, object]
    words: tuple[str, ...] = ()
    faulty: bool = True

    def script(self, device: str) -> str:
        values = {
            **_SET,
            **self.settings,
            **(_SMALL if device == "cpu" else {}),
            "name": self.name,
            "device": device,
        }
        if device == "cpu":
            values["each"] = ""
        return SCRIPT.format(**values)


JOBS = (
    Job(
        "batches made in the loop, which waits in every step, numerics by consent",
        {**_WORDS, "loader": "", "each": _WAITS, "layers": 2},
        ("--allow", "numerics", "--try", "waits,items,fused,tf32,bfloat16"),
    ),
    Job("nothing wrong", {**_PICTURES, "layers": 16, "optimizer": ", fused=True"}, faulty=False),
)


@dataclass
class Found:
    """What came of one job; seconds of a step."""

    record: Mapping[str, Any]
    kept: Sequence[Mapping[str, Any]]
    typed: list[float] = field(default_factory=list)
    fixed: list[float] = field(default_factory=list)


def rows(ground: Ground, jobs: Sequence[Job] = JOBS) -> list[Row]:
    """Promised against realised, job by job; where nothing is wrong, that nothing is kept."""
    made = []
    for job in jobs:
        found = _try_job(ground, job)
        names, took = (
            " ".join(each["name"] for each in found.kept),
            float(found.record["elapsed_seconds"]),
        )
        made.append(Row(f"{job.name}: {len(found.record['tried'])} tried in", "s", None, took))
        if not job.faulty:
            made.append(Row(f"{job.name}: kept", "", 0.0, float(len(found.kept))))
            continue
        made.append(
            Row(
                f"{job.name}: kept any",
                "",
                1.0 if ground.is_on_gpu else None,
                float(bool(found.kept)),
            )
        )
        made += _promise(f"{job.name}: {names}", found) if found.kept else []
    return made


def _promise(what: str, found: Found) -> list[Row]:
    together = found.record["together"]
    promised, half = 1e3 * together["value"], 1e3 * (together["high"] - together["low"]) / 2
    step = Row(f"{what}: step as typed", "ms", None, 1e3 * found.record["step_seconds"])
    if not found.fixed:
        return [step, Row(f"{what}: saving, not written down", "ms", None, promised)]
    typed, fixed = 1e3 * fmean(found.typed), 1e3 * fmean(found.fixed)
    spread = 1e3 * (max(found.typed) - min(found.typed) + max(found.fixed) - min(found.fixed)) / 2
    return [
        step,
        Row(f"{what}: saving", "ms", typed - fixed, promised, half + spread + 0.02 * typed),
    ]


def _try_job(ground: Ground, job: Job) -> Found:
    """Search, patch, and let both scripts time themselves, in turns."""
    folder = ground.folder / re.sub(r"[^a-z0-9]+", "-", job.name)
    folder.mkdir(exist_ok=True)
    for name in ("typed.py", "train.py"):
        (folder / name).write_text(job.script(ground.device))
    within = f"{max(60.0, _BUDGETS * ground.budget):.0f}s"
    words = [
        "--budget",
        within,
        *job.words,
        "--apply",
        "-o",
        "train.fix.json",
        "--nproc-per-node",
        "1",
        "train.py",
    ]
    run([sys.executable, "-m", "stash", "fix", *words], folder=folder)
    record = json.loads((folder / "train.fix.json").read_text())
    kept = [each for each in record["tried"] if each["standing"] == "kept"]
    found = Found(record, kept)
    if not kept:
        return found
    text = (folder / "train.py").read_text()
    for each in kept:
        if each["written"] != "patch" or each["how"]:
            known = _BY_HAND.get(each["name"].partition(":")[0])
            if known is None or known[0] not in text:
                return found
            text = text.replace(*known)
    (folder / "train.py").write_text(text)
    steps = str(max(40, round(_SECONDS / record["step_seconds"])))
    for name in ("typed.py", "train.py", "train.py", "typed.py"):
        printed = run([sys.executable, name, "--steps", steps], folder=folder)
        (found.typed if name == "typed.py" else found.fixed).append(float(printed.split()[-1]))
    return found
