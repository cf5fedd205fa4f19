"""The job of the README's recording: samples take 12 ms to arrive, as from an object store; nobody fetches ahead."""

import time

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class FarAway(Dataset[Tensor]):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.012)
        return torch.full((256,), index / 4000)


torch.set_num_threads(1)
loader = DataLoader(FarAway(), batch_size=8, shuffle=True)
model = nn.Sequential(
    nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 256)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    for samples in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(samples), samples).backward()
        optimizer.step()
