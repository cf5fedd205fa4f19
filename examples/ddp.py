# stash profile examples/ddp.py data/images    (without Stash: torchrun --nproc-per-node 2 ddp.py data/images)
"""Image classification on every GPU of every node, or on several CPU ranks, with DistributedDataParallel."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms

parser = argparse.ArgumentParser()
parser.add_argument("data", help="a folder of images in a folder for each class")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=8, help="per device")
parser.add_argument("--workers", type=int, default=1)
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)

transform = transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()])
dataset = datasets.ImageFolder(args.data, transform)
sampler = DistributedSampler(dataset)
loader = DataLoader(
    dataset, args.batch_size, sampler=sampler, num_workers=args.workers, drop_last=True
)

model = models.squeezenet1_1(num_classes=len(dataset.classes)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
criterion = nn.CrossEntropyLoss()

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
    scheduler.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")
        torch.save(model.module.state_dict(), "squeezenet.pt")
dist.destroy_process_group()
