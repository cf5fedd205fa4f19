"""A watcher hangs a hook on each parameter and takes a histogram of each gradient in each backward pass.

Seen in: wandb/wandb#2268 (log_freq lowered from 1000: "a big performance impact"), #3701 (2.2 -> 5.7 s an iteration with log="all"),
#1819 ("will very much slow down performance"), facebookresearch/fairchem#747 (hidden behind a flag).
Symptom: backward seems to take four times as long as forward; nothing in the loop itself looks expensive.
Cause: torch.histc over 1.6 million gradients, and min and max read with .item(), at every step.
Truth: the time passes within BACKWARD, in the script's own hook: about 3 ms of 6 a step.
Remedy: every 100 steps (FIXED=1).
Run: python 44_gradients_watched_by_hooks.py
"""
import json, os, tempfile, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GradientWatcher:
    def __init__(self, model, file, log_freq):
        self.file, self.log_freq, self.step, self.record = file, log_freq, 0, {}
        for name, p in model.named_parameters():
            p.register_hook(lambda grad, name=name: self.watch(name, grad))

    def watch(self, name, grad):
        if self.step % self.log_freq:
            return
        flat = grad.detach().flatten()
        low, high = flat.min().item(), flat.max().item()
        if low == high:
            high = low + 1e-12
        counts = torch.histc(flat, bins=64, min=low, max=high)
        self.record[f"gradients/{name}"] = {"min": low, "max": high, "counts": counts.tolist()}

    def flush(self, **scalars):
        if self.step % self.log_freq == 0:
            self.file.write(json.dumps({"step": self.step, **scalars, **self.record}) + "\n")
        self.record = {}
        self.step += 1


class Trainer:
    def __init__(self, model, loader, watcher):
        self.model, self.loader, self.watcher = model, loader, watcher
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.steps_done = 0

    def training_step(self, batch):
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.watcher.flush(loss=loss.item())

    def fit(self, max_steps):
        while self.steps_done < max_steps:
            for batch in self.loader:
                self.training_step(batch)
                self.steps_done += 1
                if self.steps_done >= max_steps:
                    return


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 900), nn.Tanh(), nn.Linear(900, 900), nn.Tanh(), nn.Linear(900, 600), nn.Tanh(), nn.Linear(600, 16))
loader = DataLoader(TensorDataset(torch.randn(8192, 256), torch.randn(8192, 16)), batch_size=16, shuffle=True)
with tempfile.TemporaryFile("w") as file:
    trainer = Trainer(model, loader, GradientWatcher(model, file, log_freq=100 if os.environ.get("FIXED") else 1))
    began = time.perf_counter()
    trainer.fit(int(os.environ.get("STEPS", 5000)))
    done, ms = trainer.steps_done, 1000 * (time.perf_counter() - began) / trainer.steps_done
print(f"{done} steps, {ms:.1f} ms a step")
