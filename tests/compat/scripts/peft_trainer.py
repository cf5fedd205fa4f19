"""peft: LoRA on a tiny Llama under HF Trainer."""

import sys

from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from words import Tokens, sizes

model = get_peft_model(
    LlamaForCausalLM(LlamaConfig(**sizes())),
    LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["q_proj", "v_proj"]),
)
arguments = TrainingArguments(
    output_dir=sys.argv[2],
    per_device_train_batch_size=8,
    max_steps=2000,
    save_steps=50,
    report_to=[],
    use_cpu=True,
)
Trainer(model=model, args=arguments, train_dataset=Tokens(256)).train()
