"""Loops without a loader, whose parts take known times: a batch 5 ms, a model 10, a look at validation 20.

``gpt``: batches cut from an array, accumulated, autocast, validation within; ``gan``: two models and two optimizers;
``teacher``: another model's answers are learned; ``threads``: other threads call models meanwhile; ``fails``: passes
that fail, forward and backward, are left out; ``scaler``: loss scaling skips steps; ``replicas`` and ``sharded``:
two ranks that accumulate.
"""

import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn

KIND = sys.argv[1]
STEPS = int(sys.argv[2])
SIDE = 16


class Model(nn.Module):
    """Of some equal blocks, each called several times as deep ones are."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(SIDE, SIDE), nn.Dropout(0.1)) for _ in range(6))

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(0.010)
        for block in self.blocks:
            inputs = inputs + block(inputs)
        return inputs


class FailsAt(torch.autograd.Function):
    """Its backward pass fails."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradients):
        raise MemoryError("no memory for gradients")


data = torch.randn(500, SIDE)


def batch() -> Tensor:
    time.sleep(0.005)
    return data[torch.randint(len(data), (4,))]


@torch.no_grad()
def validate(model: nn.Module) -> None:
    model.eval()
    time.sleep(0.010)
    model(data[:4])
    model.train()


def gpt(step: int) -> None:
    if step % 5 == 0:
        validate(model)
    for _ in range(2):
        inputs = batch()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(inputs).square().mean() / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def gan(step: int) -> None:
    real, noise = batch(), torch.randn(4, SIDE)
    fake = model(noise)
    critic_optimizer.zero_grad()
    (critic(fake.detach()).mean() - critic(real).mean()).backward()
    critic_optimizer.step()
    (-critic(fake).mean()).backward()
    optimizer.step()


def teacher(step: int) -> None:
    inputs = batch()
    with torch.no_grad():
        wanted = critic(inputs)
    (model(inputs) - wanted).square().mean().backward()
    optimizer.step()


def threads(step: int) -> None:
    critic.eval()  # draws no random numbers, whose order among threads would be any
    beside = threading.Thread(target=critic, args=(data[:4],))
    beside.start()
    model(batch()).square().mean().backward()
    beside.join()
    optimizer.step()


def fails(step: int) -> None:
    for lack in (step % 3 == 1, False):
        try:
            outputs = model(batch())
            if lack and step % 2:
                raise MemoryError("no memory for activations")
            (FailsAt.apply(outputs) if lack else outputs).square().mean().backward()
        except MemoryError:
            optimizer.zero_grad()
    optimizer.step()


def scaled(step: int) -> None:
    loss = model(batch()).square().mean()
    scaler.scale(loss * (float("inf") if step % 4 == 3 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()


def replicas(step: int) -> None:
    with model.no_sync():
        model(batch()).square().mean().backward()
    model(batch()).square().mean().backward()
    optimizer.step()


def sharded(step: int) -> None:
    for _ in range(2):
        model(batch()).square().mean().backward()
    optimizer.step()


model, critic = Model(), Model()
if KIND in ("replicas", "sharded"):
    dist.init_process_group("gloo")
if KIND == "replicas":
    model = nn.parallel.DistributedDataParallel(model)
elif KIND == "sharded":
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    wrap = ModuleWrapPolicy({nn.Sequential})
    model = FullyShardedDataParallel(model, auto_wrap_policy=wrap, device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
critic_optimizer = torch.optim.AdamW(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=KIND == "scaler")
act = {"scaler": scaled}.get(KIND) or globals()[KIND]
for step in range(STEPS):
    optimizer.zero_grad(set_to_none=True)
    act(step)
