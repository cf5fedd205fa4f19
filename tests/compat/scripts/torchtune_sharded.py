"""torchtune: its Llama 3 with its own sharding (FSDP2), collation and linear cross entropy, on two ranks."""

from functools import partial

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchtune.data import padded_collate_sft
from torchtune.models.llama3 import llama3
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.training import get_shard_conditions, shard_model
from words import VOCABULARY, Tokens


def collate(rows):
    texts = [row["input_ids"].tolist() for row in rows]
    return padded_collate_sft([{"tokens": text, "labels": text} for text in texts])


torch.manual_seed(0)
dist.init_process_group("gloo")
model = llama3(
    VOCABULARY, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=128, max_seq_len=128
)
shard_model(
    model, [partial(get_shard_conditions, names_to_match=["tok_embeddings"])], cpu_offload=False
)
loss_of = CEWithChunkedOutputLoss()
model.set_num_output_chunks(loss_of.num_output_chunks)
optimizer = torch.optim.AdamW(model.parameters())
rows = Tokens(256)
sampler = DistributedSampler(rows)
loader = DataLoader(rows, batch_size=8, sampler=sampler, collate_fn=collate, num_workers=1)
for epoch in range(50):
    sampler.set_epoch(epoch)
    for batch in loader:
        ends = torch.full((len(batch["labels"]), 1), loss_of.ignore_index)
        labels = torch.hstack((batch["labels"][..., 1:], ends))
        loss = loss_of(model(batch["tokens"]), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
