"""pytorch-ignite: its supervised trainer, with an evaluator and a checkpoint after every epoch."""

import sys

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from ignite.metrics import Accuracy
from pictures import loader, network

data, out = sys.argv[1], sys.argv[2]
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
trainer = create_supervised_trainer(model, optimizer, torch.nn.CrossEntropyLoss())
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})
checks = loader(f"{data}/val", shuffle=False)
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: evaluator.run(checks))
saver = Checkpoint(
    {"model": model}, DiskSaver(out, create_dir=True, require_empty=False), n_saved=1
)
trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
trainer.run(loader(f"{data}/train"), max_epochs=500)
