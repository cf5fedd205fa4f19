"""transformers: its Trainer with evaluation, checkpoints and early stopping, on a tiny Llama."""

import sys

from transformers import (
    EarlyStoppingCallback,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)
from words import Tokens, sizes

arguments = TrainingArguments(
    output_dir=sys.argv[2],
    per_device_train_batch_size=8,
    num_train_epochs=100,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    load_best_model_at_end=True,
    metric_for_best_model="loss",
    logging_steps=5,
    report_to=[],
    use_cpu=True,
)
Trainer(
    model=LlamaForCausalLM(LlamaConfig(**sizes())),
    args=arguments,
    train_dataset=Tokens(256),
    eval_dataset=Tokens(32),
    callbacks=[EarlyStoppingCallback(early_stopping_patience=90)],
).train()
