# stash profile examples/accumulate_amp.py data/images
"""Mixed precision with loss scaling, and gradients accumulated over four batches before they are exchanged."""

import argparse
import contextlib
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
parser.add_argument("--batch-size", type=int, default=2, help="per device and micro-batch")
parser.add_argument("--accumulate", type=int, default=4)
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
kind, dtype = ("cuda", torch.float16) if torch.cuda.is_available() else ("cpu", torch.bfloat16)
device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)

transform = transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()])
dataset = datasets.ImageFolder(args.data, transform)
loader = DataLoader(
    dataset, args.batch_size, sampler=DistributedSampler(dataset), num_workers=1, drop_last=True
)
model = DistributedDataParallel(models.squeezenet1_1(num_classes=len(dataset.classes)).to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(kind, enabled=dtype == torch.float16)
criterion = nn.CrossEntropyLoss()

for _ in range(args.epochs):
    for number, (images, labels) in enumerate(loader, 1):
        images, labels = images.to(device), labels.to(device)
        last = number % args.accumulate == 0
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.autocast(kind, dtype):
                loss = criterion(model(images), labels) / args.accumulate
            scaler.scale(loss).backward()
        if last:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
dist.destroy_process_group()
