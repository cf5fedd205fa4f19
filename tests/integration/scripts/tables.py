"""A recommender on one rank: embedding tables whose sizes and whose hottest row are set, beside layers that compute.

Lookups are timed by the script itself, around its calls of the tables.
"""

import argparse
import itertools
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 1000], help="of each table")
parser.add_argument("--dimension", type=int, default=64)
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--pooling", type=int, default=20, help="lookups of a sample in each table")
parser.add_argument(
    "--hot",
    type=float,
    default=0.25,
    help="share of them that is row 0; the others are all different",
)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=512)
parser.add_argument(
    "--steps", type=int, help="train so many, print means of all but the first ten, and end"
)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
count = args.batch * args.pooling
hot = round(args.hot * count)
tables = nn.ModuleList(
    nn.EmbeddingBag(rows, args.dimension, mode="sum", sparse=True) for rows in args.rows
)
widths = [args.dimension * len(tables), *[args.width] * args.layers]
parts = [part for pair in itertools.pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
model = nn.Sequential(*parts, nn.Linear(widths[-1], 1))
optimizer = torch.optim.SGD([*tables.parameters(), *model.parameters()], lr=1e-4)


def indices(rows):
    """Row 0 as often as it is hot, and as many others as there are, in turns."""
    others = 1 + torch.randperm(rows - 1).repeat(1 + count // (rows - 1))[: count - hot]
    return torch.cat([torch.zeros(hot, dtype=torch.long), others])[torch.randperm(count)].view(
        args.batch, -1
    )


batches = [[indices(rows) for rows in args.rows] for _ in range(8)]
began, looked_up = [], [0.0]
for step in range(args.steps or 100_000):
    began.append(time.perf_counter())
    optimizer.zero_grad()
    batch = batches[step % len(batches)]
    looks = time.perf_counter()
    found = [table(each) for table, each in zip(tables, batch, strict=True)]
    looked_up.append(looked_up[-1] + time.perf_counter() - looks)
    model(torch.cat(found, 1)).square().mean().backward()
    optimizer.step()
if args.steps:
    steps = len(began) - 11
    print(
        "a step takes",
        (began[-1] - began[10]) / steps,
        "looking up takes",
        (looked_up[-2] - looked_up[10]) / steps,
    )
