"""A small GPT on packed documents: every attention layer draws its block-diagonal mask row by row in Python.

Seen in: karpathy/nanoGPT#280 ("how to set a causal mask for packed documents"), meta-pytorch/torchtune#1130 ("we are not
being entirely efficient in our attention mask creation for sample packing"), lightseekorg/TorchSpec#86 (mask creation
takes 70 % of the forward pass).
Symptom: after packing was switched on the forward pass takes much longer than the backward pass; one core works.
Cause: document_mask() walks over all rows and positions, and each of the layers does so again for the same batch.
Planted: rows x positions x layers small slice assignments inside forward(), about 60 % of a step.
Remedy: one mask for the whole batch, made by comparing the segment numbers by broadcasting, handed to all layers (FIXED=1).
Run: python 49_mask_built_by_loops.py
"""
import argparse
import os
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", 260)))
    p.add_argument("--shared-mask", action="store_true", default=bool(os.environ.get("FIXED")))
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--block-size", type=int, default=256)
    p.add_argument("--vocab", type=int, default=512)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--window", type=int, default=128)
    p.add_argument("--lr", type=float, default=3e-4)
    return p.parse_args()


class PackedText(Dataset):
    """Rows of tokens in which several documents follow each other; `segments` numbers the documents of a row."""

    def __init__(self, rows, block_size, vocab, seed=1):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(2, vocab, (rows, block_size + 1), generator=g)
        begins = torch.rand(rows, block_size + 1, generator=g) < 1 / 60
        self.segments = begins.long().cumsum(1)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.segments[i]


class PackedSelfAttention(nn.Module):
    def __init__(self, dim, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def document_mask(self, segments):
        batch, length = segments.shape
        mask = torch.zeros(batch, length, length, dtype=torch.bool, device=segments.device)
        for b, row in enumerate(segments.tolist()):
            start = 0
            for i in range(length):
                if row[i] != row[start]:
                    start = i
                mask[b, i, start:i + 1] = True                      # own document, not the future
                mask[b, i, :max(0, i - self.window)] = False        # nothing beyond the window
        return mask.unsqueeze(1)

    def forward(self, x, segments, mask=None):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if mask is None:
            mask = self.document_mask(segments)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, dim, heads, window):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = PackedSelfAttention(dim, heads, window)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, segments, mask=None):
        x = x + self.attn(self.ln_1(x), segments, mask)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.window, self.shared_mask = args.window, args.shared_mask
        self.wte = nn.Embedding(args.vocab, args.dim)
        self.wpe = nn.Embedding(args.block_size, args.dim)
        self.blocks = nn.ModuleList(Block(args.dim, args.heads, args.window) for _ in range(args.layers))
        self.ln_f = nn.LayerNorm(args.dim)
        self.head = nn.Linear(args.dim, args.vocab, bias=False)

    def broadcast_mask(self, segments):
        pos = torch.arange(segments.shape[1], device=segments.device)
        distance = pos[:, None] - pos[None, :]
        near = (distance >= 0) & (distance <= self.window)
        return ((segments[:, :, None] == segments[:, None, :]) & near).unsqueeze(1)

    def forward(self, tokens, segments, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        mask = self.broadcast_mask(segments) if self.shared_mask else None
        for block in self.blocks:
            x = block(x, segments, mask)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def main():
    args = get_args()
    torch.manual_seed(0)
    loader = DataLoader(PackedText(1024, args.block_size, args.vocab), args.batch_size, shuffle=True, drop_last=True)
    model = GPT(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)

    step, running, epoch = 0, None, 0
    began = time.perf_counter()
    while step < args.steps:
        epoch += 1
        for tokens, segments in loader:
            targets = tokens[:, 1:].clone()
            targets[segments[:, 1:] != segments[:, :-1]] = -1        # the first token of a document is not predicted
            loss = model(tokens[:, :-1], segments[:, :-1], targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 50 == 0:
                running = loss.item()
                print(f"epoch {epoch} step {step}: loss {running:.3f}", flush=True)
            if step == args.steps:
                break
    print(f"steps {step}, seconds a step {(time.perf_counter() - began) / step:.4f}")


if __name__ == "__main__":
    main()
