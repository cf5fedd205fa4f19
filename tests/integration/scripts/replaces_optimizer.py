"""A new optimizer for every epoch, for every fold of a cross-validation, or for a second stage of training."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--when", choices=("epoch", "fold", "stage"), default="epoch")
parser.add_argument("--epochs", type=int, default=400)
options = parser.parse_args()

torch.set_num_threads(1)  # layers this small only wait for further ones
torch.manual_seed(0)
data = TensorDataset(torch.rand(320, 32), torch.randint(0, 2, (320,)))
loader = DataLoader(data, batch_size=16, shuffle=True)


def network():
    return torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 2))


def train(model, parameters, epochs):
    optimizer = torch.optim.Adam(parameters)
    # which keeps an optimizer alive until it is collected
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        scheduler.step()


model = network()
if options.when == "stage":
    model[0].requires_grad_(False)
    train(model, list(model[2].parameters()), 4)
    model.requires_grad_(True)
    train(model, list(model.parameters()), options.epochs)
else:
    for _ in range(options.epochs):
        model = network() if options.when == "fold" else model
        train(model, list(model.parameters()), 1)
