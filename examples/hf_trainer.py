# stash profile --nproc-per-node 2 examples/hf_trainer.py data/text
"""Hugging Face Trainer: a small BERT trained from scratch, evaluated and saved every 500 steps."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset, random_split
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

LENGTH = 64


class Sentences(Dataset):
    """Sentences of token ids from the files of a folder; the label is whether the first token is even."""

    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.bin"))
        self.each = self.files[0].stat().st_size // (2 * LENGTH)

    def __len__(self):
        return sum(file.stat().st_size // (2 * LENGTH) for file in self.files)

    def __getitem__(self, index):
        file, place = divmod(index, self.each)
        ids = np.fromfile(self.files[file], np.uint16, LENGTH, offset=2 * LENGTH * place).astype(
            np.int64
        )
        return {"input_ids": torch.from_numpy(ids), "labels": int(ids[0] % 2)}


parser = argparse.ArgumentParser()
parser.add_argument("data", help="a folder of token files")
parser.add_argument("--output", default="bert-run")
args = parser.parse_args()

config = BertConfig(
    vocab_size=65536,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=128,
)
training, held_out = random_split(Sentences(args.data), [0.9, 0.1])
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=TrainingArguments(
        output_dir=args.output,
        per_device_train_batch_size=8,
        num_train_epochs=3,
        eval_strategy="steps",
        eval_steps=500,
        save_steps=500,
        logging_steps=50,
        report_to="none",
    ),
    train_dataset=training,
    eval_dataset=held_out,
)
trainer.train()
trainer.save_model()
