"""``StashCallback`` in the trainers of Transformers and Lightning, one after the other in one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stash.monitor.records import load_record

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).resolve().parents[2] / "src"
STEPS = 60
SCRIPT = f"""
import torch
from stash.core.imports import prepare_torchvision
prepare_torchvision()
from transformers import Trainer, TrainingArguments
import lightning.pytorch as pl
from stash.callbacks.lightning import StashCallback as LightningCallback
from stash.callbacks.transformers import StashCallback

class Scored(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def forward(self, x, labels):
        scores = self.layer(x).squeeze(-1)
        return {{"loss": ((scores - labels) ** 2).mean(), "logits": scores}}

rows = [{{"x": torch.randn(8), "labels": torch.randn(())}} for _ in range(64)]
arguments = TrainingArguments("out", max_steps={STEPS}, per_device_train_batch_size=8, report_to=[],
                              save_strategy="no", use_cpu=True, disable_tqdm=True)
Trainer(Scored(), arguments, train_dataset=rows, callbacks=[StashCallback("transformers.watch.jsonl")]).train()

class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, number):
        return ((self.layer(batch[0]) - batch[1]) ** 2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), 8)
trainer = pl.Trainer(max_steps={STEPS}, accelerator="cpu", logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, callbacks=[LightningCallback("lightning.watch.jsonl")])
trainer.fit(Lit(), loader)
"""


def test_each_trainer_leaves_the_record_of_its_steps(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("transformers", "lightning"):
        record = load_record(tmp_path / f"{name}.watch.jsonl")
        assert [event.what for event in record.events if event.what == "end"] == ["end"]
        assert STEPS - 5 <= record.windows[-1].last_step <= STEPS
        assert record.header.began <= record.windows[0].began
