"""Lightning: ``fit`` with validation, its logger and its default checkpoint callback."""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from pictures import loader, network


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = network()

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


data, out = sys.argv[1], sys.argv[2]
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=500,
    default_root_dir=out,
    logger=CSVLogger(out),
    callbacks=[
        ModelCheckpoint(monitor="val_loss"),
        EarlyStopping("val_loss", patience=400),
        LearningRateMonitor(),
    ],
    enable_progress_bar=False,
)
trainer.fit(Classifier(), loader(f"{data}/train"), loader(f"{data}/val", shuffle=False))
trainer.save_checkpoint(f"{out}/last.ckpt")
