"""litgpt: its own full finetuning, of a tiny random model on instructions made here; nothing is downloaded."""

import json
import random
import sys
from pathlib import Path

import torch
from litgpt import GPT, Config
from litgpt.args import EvalArgs, TrainArgs
from litgpt.data import JSON
from litgpt.finetune.full import setup
from litgpt.utils import save_config
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

END = "<end>"


def sentence():
    return " ".join(random.choice(["profile", "train", "wait", "load"]) for _ in range(12))


out = Path(sys.argv[2])
checkpoint = out / "tiny"
checkpoint.mkdir(parents=True, exist_ok=True)
letters = [*sorted(ByteLevel.alphabet()), END]
config = Config(name="tiny", block_size=512, padded_vocab_size=320, n_layer=2, n_head=4, n_embd=128)
torch.save(GPT(config).state_dict(), checkpoint / "lit_model.pth")
save_config(config, checkpoint)
tokenizer = Tokenizer(BPE({letter: number for number, letter in enumerate(letters)}, []))
tokenizer.pre_tokenizer = ByteLevel()
tokenizer.save(str(checkpoint / "tokenizer.json"))
(checkpoint / "tokenizer_config.json").write_text(
    json.dumps({"tokenizer_class": "GPTNeoX", "eos_token": END})
)
(out / "instructions.json").write_text(
    json.dumps([{"instruction": sentence(), "output": sentence()} for _ in range(256)])
)
setup(
    checkpoint,
    out / "finetuned",
    precision="32-true",
    data=JSON(out / "instructions.json", val_split_fraction=0.1, num_workers=1),
    train=TrainArgs(
        global_batch_size=8, micro_batch_size=4, lr_warmup_steps=5, epochs=50, save_interval=None
    ),
    eval=EvalArgs(interval=1000, max_iters=2, max_new_tokens=8, final_validation=False),
)
