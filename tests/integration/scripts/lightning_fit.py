"""Lightning with its DDP strategy: validation, logging across ranks and checkpoints included."""

import argparse

import lightning
import torch
from parts import ArrayFolder, network
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = network()

    def training_step(self, batch, index):
        pictures, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(pictures), labels)
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch, index):
        pictures, labels = batch
        self.log(
            "val_loss",
            torch.nn.functional.cross_entropy(self.model(pictures), labels),
            sync_dist=True,
        )

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--output", required=True)
args = parser.parse_args()

dataset = ArrayFolder(args.data)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_epochs=3,
    default_root_dir=args.output,
    log_every_n_steps=5,
    enable_progress_bar=False,
    logger=False,
)
trainer.fit(Classifier(), DataLoader(dataset, 16, shuffle=True), DataLoader(dataset, 16))
trainer.save_checkpoint(f"{args.output}/last.ckpt")
