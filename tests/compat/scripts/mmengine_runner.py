"""MMEngine: its Runner, with validation, checkpoints and logging as its documentation shows them."""

import sys

import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner
from pictures import BATCH, network, pictures

data, out = sys.argv[1], sys.argv[2]


class Classifier(BaseModel):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, images, labels, mode):
        found = self.net(images)
        return (
            {"loss": torch.nn.functional.cross_entropy(found, labels)}
            if mode == "loss"
            else (found, labels)
        )


class Accuracy(BaseMetric):
    def process(self, data_batch, data_samples):
        found, labels = data_samples
        self.results.append({"right": int((found.argmax(1) == labels).sum()), "of": len(labels)})

    def compute_metrics(self, results):
        return {"accuracy": sum(r["right"] for r in results) / sum(r["of"] for r in results)}


def loader(part):
    sampler = {"type": "DefaultSampler", "shuffle": part == "train"}
    rest = {"sampler": sampler, "collate_fn": {"type": "default_collate"}, "num_workers": 1}
    return {"batch_size": BATCH, "dataset": pictures(f"{data}/{part}"), **rest}


Runner(
    model=Classifier(),
    work_dir=out,
    train_dataloader=loader("train"),
    val_dataloader=loader("val"),
    train_cfg={"by_epoch": True, "max_epochs": 500, "val_interval": 1},
    val_cfg={},
    val_evaluator={"type": Accuracy},
    optim_wrapper={"optimizer": {"type": torch.optim.SGD, "lr": 0.01}},
    default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 1, "max_keep_ckpts": 1}},
).train()
