"""Hugging Face Trainer: a tiny BERT classifier, evaluated and saved every few steps."""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    """Token numbers made of the bytes of files."""

    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.npy"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        tokens = torch.from_numpy(np.load(self.files[index]).reshape(-1)[:32].astype(np.int64))
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": tokens[0] % 2,
        }


parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--output_dir", required=True)
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()

config = BertConfig(
    vocab_size=256,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=128,
)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=args.accumulate,
        num_train_epochs=2,
        eval_strategy="steps",
        eval_steps=5,
        save_steps=5,
        logging_steps=5,
        report_to=[],
        use_cpu=True,
    ),
    train_dataset=Sentences(args.data),
    eval_dataset=Sentences(args.data),
)
trainer.train()
trainer.save_model()
