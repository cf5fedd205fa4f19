"""What the language scripts of the matrix train: tiny random models on generated tokens, nothing downloaded."""

import torch
from torch.utils.data import Dataset

VOCABULARY, LENGTH = 256, 64


class Tokens(Dataset):
    """Random sentences, each its own label."""

    def __init__(self, count):
        self.tokens = torch.randint(0, VOCABULARY, (count, LENGTH))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def sizes():
    """Of a Llama that takes some ten milliseconds a step."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    }
