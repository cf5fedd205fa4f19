"""timm: its loader, model, optimizer, schedule and saver in the loop of its train.py, which no wheel carries."""

import sys
from pathlib import Path

import timm
import torch
from timm.data import create_dataset, create_loader
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, CheckpointSaver

data, out, epochs = sys.argv[1], sys.argv[2], 200
Path(out).mkdir(parents=True, exist_ok=True)
model = timm.create_model("test_resnet", num_classes=2)
size = {
    "input_size": (3, 64, 64),
    "batch_size": 16,
    "use_prefetcher": False,
    "num_workers": 1,
    "device": "cpu",
}
train = create_loader(create_dataset("", data, split="train"), is_training=True, **size)
check = create_loader(create_dataset("", data, split="val"), is_training=False, **size)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
scheduler, _ = create_scheduler_v2(optimizer, num_epochs=epochs, updates_per_epoch=len(train))
saver = CheckpointSaver(model, optimizer, checkpoint_dir=out)
criterion = torch.nn.CrossEntropyLoss()

for epoch in range(epochs):
    losses, accumulate, rest = AverageMeter(), 1, len(train) % 1
    for index, (pictures, labels) in enumerate(train):
        if index >= len(train) - rest:
            accumulate = rest  # as train.py has it: nothing may come after the epoch's last batch
        loss = criterion(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), len(labels))
        print(f"epoch {epoch} [{index // accumulate}/{len(train)}] {losses.avg:.3f}")
    with torch.no_grad():
        right = sum(int((model(pictures).argmax(1) == labels).sum()) for pictures, labels in check)
    scheduler.step(epoch + 1)
    saver.save_checkpoint(epoch, metric=right)
