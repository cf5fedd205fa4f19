"""trl: supervised fine-tuning of a tiny Llama with a tokenizer made here."""

import sys

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer
from words import sizes

vocabulary = {"<pad>": 0, "<eos>": 1, **{f"w{number}": number for number in range(2, 256)}}
words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
texts = [" ".join(f"w{2 + (seed * place) % 250}" for place in range(1, 60)) for seed in range(256)]
SFTTrainer(
    model=LlamaForCausalLM(LlamaConfig(**sizes())),
    args=SFTConfig(
        output_dir=sys.argv[2],
        per_device_train_batch_size=8,
        num_train_epochs=50,
        report_to=[],
        use_cpu=True,
        bf16=False,
    ),
    train_dataset=Dataset.from_dict({"text": texts}),
    processing_class=tokenizer,
).train()
