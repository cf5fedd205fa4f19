"""Causal ring attention over a document cut in two halves: the rank with the beginning waits at each turn of the ring.

Seen in: context-parallel training of language models with a hand-written ring of sends and receives (ring-attention
projects and their forks: "causal attention does not scale, the first ranks idle", the discussion that led to striped and
"zigzag" layouts).
Symptom: two processes are hardly 1.3 times as fast as one; `irecv` is the top entry of the first rank, the last rank looks
busy; a faster link changes nothing.
Cause: keys and values travel from rank to rank by isend/irecv, in each turn everybody attends to the block that has just
arrived. With a causal mask and contiguous chunks rank 0 sees only its own block (all that arrives lies in its future), the
last rank sees them all: one unit of work against two, in each layer, forward and backward, and the next turn of the ring
couples them.
Planted: rank 0 waits in `request.wait()` for about 40 % of the step; the messages themselves are below a megabyte.
Remedy: each rank owns one chunk from the front and the mirrored one from the back of the document (FIXED=1): all ranks have
the same pairs of blocks to do.
Run: torchrun --standalone --nproc-per-node 2 57_causal_ring_in_two_halves.py
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

FIXED = bool(os.environ.get("FIXED"))


class Ring:
    """Who sits where, who owns which chunks of the document, and how blocks move on."""

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.right, self.left = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        self.group = dist.new_group(list(range(self.world)))

    @property
    def chunks(self):
        return 2 * self.world if FIXED else self.world

    def owned(self, rank):
        return [rank, 2 * self.world - 1 - rank] if FIXED else [rank]

    def visible(self, source, length):
        """Rows and columns of what our queries may see of the block that rank `source` owns."""
        mine, theirs = self.owned(self.rank), self.owned(source)
        size = length // len(mine)
        for a, row in enumerate(mine):
            for b, column in enumerate(theirs):
                if column <= row:
                    yield slice(a * size, a * size + size), slice(b * size, b * size + size), column == row

    def rotate(self, block):
        block = block.contiguous()
        incoming = torch.empty_like(block)
        requests = [dist.isend(block, self.right, group=self.group), dist.irecv(incoming, self.left, group=self.group)]
        for request in requests:
            request.wait()
        return incoming


def scores_of(q, k, diagonal):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if diagonal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    return scores


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, ring):
        out = torch.zeros_like(q)
        lse = q.new_full((*q.shape[:-1], 1), float("-inf"))
        kv = torch.stack((k, v))
        for turn in range(ring.world):
            source = (ring.rank - turn) % ring.world
            for rows, columns, diagonal in ring.visible(source, q.shape[-2]):
                scores = scores_of(q[..., rows, :], kv[0][..., columns, :], diagonal)
                block_lse = scores.logsumexp(-1, keepdim=True)
                block_out = (scores - block_lse).exp() @ kv[1][..., columns, :]
                total = torch.logaddexp(lse[..., rows, :], block_lse)
                out[..., rows, :] = out[..., rows, :] * (lse[..., rows, :] - total).exp() + block_out * (block_lse - total).exp()
                lse[..., rows, :] = total
            if turn + 1 < ring.world:
                kv = ring.rotate(kv)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.ring = ring
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, lse = ctx.saved_tensors
        ring, scale = ctx.ring, q.shape[-1] ** -0.5
        delta = (grad * out).sum(-1, keepdim=True)
        dq = torch.zeros_like(q)
        kv = torch.stack((k, v))
        dkv = torch.zeros_like(kv)
        for turn in range(ring.world):
            source = (ring.rank - turn) % ring.world
            for rows, columns, diagonal in ring.visible(source, q.shape[-2]):
                key, value, g = kv[0][..., columns, :], kv[1][..., columns, :], grad[..., rows, :]
                p = (scores_of(q[..., rows, :], key, diagonal) - lse[..., rows, :]).exp()
                ds = p * (g @ value.transpose(-1, -2) - delta[..., rows, :]) * scale
                dq[..., rows, :] += ds @ key
                dkv[0][..., columns, :] += ds.transpose(-1, -2) @ q[..., rows, :]
                dkv[1][..., columns, :] += p.transpose(-1, -2) @ g
            dkv = ring.rotate(dkv)                                 # gradients travel along with their block, and home at last
            if turn + 1 < ring.world:
                kv = ring.rotate(kv)
        return dq, dkv[0], dkv[1], None


class Block(nn.Module):
    def __init__(self, dim, heads, ring):
        super().__init__()
        self.heads, self.ring = heads, ring
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = RingAttention.apply(q, k, v, self.ring)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.before_mlp(x))


class ByteModel(nn.Module):
    def __init__(self, args, ring):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, args.dim), nn.Embedding(args.context, args.dim)
        self.blocks = nn.Sequential(*[Block(args.dim, args.heads, ring) for _ in range(args.layers)])
        self.norm, self.head = nn.LayerNorm(args.dim), nn.Linear(args.dim, 256)

    def forward(self, ids, positions):
        return self.head(self.norm(self.blocks(self.bytes(ids) + self.places(positions))))


def documents(context, seed=0):
    """The same document on all ranks; each takes its own positions of it."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randint(0, 256, (1, context + 1), generator=generator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", 130)))
    parser.add_argument("--context", type=int, default=896)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ring = Ring()
    model = DDP(ByteModel(args, ring))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    size = args.context // ring.chunks
    positions = torch.cat([torch.arange(c * size, c * size + size) for c in ring.owned(ring.rank)])

    stream = documents(args.context)
    dist.barrier()
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        document = next(stream)
        logits = model(document[:, positions], positions)
        loss = F.cross_entropy(logits.flatten(0, 1), document[:, positions + 1].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if ring.rank == 0 and step % 50 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    took = time.perf_counter() - start
    if ring.rank == 0:
        print(f"steps {args.steps}, seconds a step {took / args.steps:.4f}", flush=True)
    dist.barrier()
    del logits, loss, model, optimizer, ring
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
