# stash profile examples/spot_job.py   then: stash spot learn examples/spot_job.py:job
"""A small classifier, described once: an ordinary script below, and what Stash trains on workers that come and go."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import stash.spot

CLASSES, SAMPLES, BATCH = 10, 4096, 32


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 3 * 3, CLASSES),
    )


def data() -> Dataset:
    """Noisy pictures of ten blurred patterns; the same ones in every process."""
    random = torch.Generator().manual_seed(1)
    patterns = nn.functional.interpolate(torch.randn(CLASSES, 3, 4, 4, generator=random), size=16)
    labels = torch.randint(CLASSES, (SAMPLES,), generator=random)
    return TensorDataset(
        patterns[labels] + 2 * torch.randn(SAMPLES, 3, 16, 16, generator=random), labels
    )


def loss(model: nn.Module, batch) -> torch.Tensor:
    pictures, labels = batch
    return nn.functional.cross_entropy(model(pictures), labels)


def optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


job = stash.spot.Job(model, loss, optimizer, data, batch=BATCH)

if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trained = model().to(device)
    steps = optimizer(trained.parameters())
    for epoch in range(10):
        for batch in DataLoader(data(), BATCH, shuffle=True, num_workers=1):
            steps.zero_grad()
            error = loss(trained, [part.to(device) for part in batch])
            error.backward()
            steps.step()
        print(f"epoch {epoch}: loss {error.item():.3f}")
