"""A mixture of experts by hand, one on each of two ranks, which takes a set time for each token it is sent.

``--share`` of every rank's tokens goes to the last rank.
"""

import argparse
import time

import torch
import torch.distributed as dist

from stash.lab.testbed.accelerator import go_first

parser = argparse.ArgumentParser()
parser.add_argument("--share", type=float, default=0.75)
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument(
    "--seconds", type=float, default=0.0005, help="a token; twice that in the backward pass"
)
args = parser.parse_args()


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, given, taken):
        ctx.splits = given, taken
        got = rows.new_zeros(sum(taken), rows.shape[1])
        dist.all_to_all_single(got, rows, taken, given)
        return got

    @staticmethod
    def backward(ctx, gradient):
        given, taken = ctx.splits
        rows = gradient.new_zeros(sum(given), gradient.shape[1])
        dist.all_to_all_single(rows, gradient.contiguous(), given, taken)
        return rows, None, None


class Expert(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, scale):
        ctx.save_for_backward(rows, scale)
        time.sleep(len(rows) * args.seconds)
        return rows * scale

    @staticmethod
    def backward(ctx, gradient):
        rows, scale = ctx.saved_tensors
        time.sleep(2 * len(rows) * args.seconds)
        return gradient * scale, (gradient * rows).sum().reshape(1)


go_first()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
last = round(args.share * args.tokens)
given = [args.tokens - last, last]
taken = [given[rank]] * 2
router, scale = torch.nn.Linear(8, 8), torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([*router.parameters(), scale], lr=0.001)
for _ in range(100_000):
    optimizer.zero_grad()
    sent = Exchange.apply(router(torch.ones(args.tokens, 8)), given, taken)
    Exchange.apply(Expert.apply(sent, scale), taken, given).square().mean().backward()
    optimizer.step()
