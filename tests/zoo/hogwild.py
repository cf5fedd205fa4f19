"""Processes that train one shared model without ever forming a group; the parent saves it at the end."""

import sys

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def train(number, model):
    torch.manual_seed(number)
    loader = DataLoader(
        TensorDataset(torch.rand(256, 64), torch.randint(10, (256,))), 16, shuffle=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(100_000):
        for pictures, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    mp.set_start_method(sys.argv[2])
    shared = torch.nn.Linear(64, 10).share_memory()
    trainers = [mp.Process(target=train, args=(number, shared)) for number in range(2)]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join()
    torch.save(shared.state_dict(), sys.argv[1])
