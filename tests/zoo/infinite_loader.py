"""A loader that keeps one iterator for ever and overrides ``__iter__``, as ultralytics' does."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset


class Repeated:
    """A sampler without end."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class Infinite(DataLoader):
    """Workers survive the epochs because the iterator never ends."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
        self.iterator = None

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        if self.iterator is None:
            self.iterator = self._get_iterator()
        for _ in range(len(self)):
            yield next(self.iterator)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(160, 64), torch.randn(160, 1))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train_loader, val_loader = (
        Infinite(data, batch_size=8, shuffle=shuffle, num_workers=1) for shuffle in (True, False)
    )
    for _ in range(400):
        taken = 0
        for inputs, targets in train_loader:
            time.sleep(0.002)
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            taken += 1
        assert taken == 20
        for inputs, _targets in val_loader:
            time.sleep(0.1)
            model(inputs)
