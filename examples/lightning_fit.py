# stash profile --nproc-per-node 2 examples/lightning_fit.py data/images
"""Image classification with Lightning on all devices, validated after every epoch."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchvision import datasets, models, transforms


class Classifier(lightning.LightningModule):
    def __init__(self, classes):
        super().__init__()
        self.model = models.squeezenet1_1(num_classes=classes)

    def training_step(self, batch, _):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        images, labels = batch
        self.log(
            "held out", nn.functional.cross_entropy(self.model(images), labels), sync_dist=True
        )

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


parser = argparse.ArgumentParser()
parser.add_argument("data", help="a folder of images in a folder for each class")
parser.add_argument("--output", default="lightning-run")
args = parser.parse_args()

transform = transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()])
dataset = datasets.ImageFolder(args.data, transform)
training, held_out = random_split(dataset, [0.9, 0.1])
trainer = lightning.Trainer(
    devices="auto" if torch.cuda.is_available() else 2,
    strategy="ddp",
    max_epochs=10,
    default_root_dir=args.output,
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(
    Classifier(len(dataset.classes)),
    DataLoader(training, 8, shuffle=True, num_workers=1),
    DataLoader(held_out, 8),
)
trainer.save_checkpoint(f"{args.output}/last.ckpt")
