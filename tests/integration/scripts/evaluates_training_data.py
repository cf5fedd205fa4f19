"""Accuracy over the loader that trains, as many examples compute it: after every epoch, or every few steps.

``--how`` says in which form: without gradients, in ``eval`` mode with gradients, or statistics of normalisation.
"""

import argparse
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument(
    "--how", choices=("no_grad", "inference", "gradients", "within", "update_bn"), default="no_grad"
)
parser.add_argument("--seconds", type=float, default=0.03)
options = parser.parse_args()

torch.set_num_threads(1)  # layers this small only wait for further ones
torch.manual_seed(0)
data = TensorDataset(torch.rand(80, 32), torch.randint(0, 2, (80,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = torch.nn.Sequential(
    torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def accuracy():
    model.eval()
    right = 0
    for inputs, labels in loader:
        time.sleep(options.seconds)
        right += int((model(inputs).argmax(dim=1) == labels).sum())
    model.train()
    return right / len(data)


def evaluate():
    if options.how == "update_bn":
        torch.optim.swa_utils.update_bn(loader, model)
    elif options.how == "gradients":
        accuracy()
    else:
        with torch.inference_mode() if options.how == "inference" else torch.no_grad():
            accuracy()


for _ in range(2000):
    for number, (inputs, labels) in enumerate(loader):
        optimizer.zero_grad()
        time.sleep(options.seconds)
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if options.how == "within" and number % 2:
            evaluate()
    evaluate()
