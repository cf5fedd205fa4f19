# stash profile examples/single_device.py data/images
"""Image classification on one GPU, or on the CPU if there is none."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("data", help="a folder of images in a folder for each class")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--workers", type=int, default=1)
args = parser.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
augment = transforms.Compose(
    [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)
dataset = datasets.ImageFolder(args.data, augment)
loader = DataLoader(
    dataset,
    args.batch_size,
    shuffle=True,
    num_workers=args.workers,
    pin_memory=device.type == "cuda",
)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(32 * 4 * 4, len(dataset.classes)),
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(args.epochs):
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
torch.save(model.state_dict(), "classifier.pt")
