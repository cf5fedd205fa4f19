"""DeepSpeed: the loop of its documentation, ZeRO stage 3; its first start builds an operator, which takes minutes."""

import sys

import deepspeed
import torch
from pictures import loader, network

deepspeed.init_distributed(dist_backend="gloo")
model = network()
config = {
    "train_micro_batch_size_per_gpu": 16,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(500):
    for images, labels in loader(f"{sys.argv[1]}/train"):
        engine.backward(torch.nn.functional.cross_entropy(engine(images), labels))
        engine.step()
