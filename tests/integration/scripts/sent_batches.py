"""Rank 0 reads every batch and broadcasts it: without that a rank has none, and without flags it does not go on."""

import time

import torch
import torch.distributed as dist
from parts import network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(640, 3, 32, 32), torch.randint(0, 10, (640,)))
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), 0.01)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return len(data)

    def __getitem__(self, index):
        time.sleep(0.002)
        return data[index]


def batches():
    while True:
        for batch in (
            DataLoader(Slow(), batch_size=16) if dist.get_rank() == 0 else iter(lambda: None, 0)
        ):
            box = [batch]
            dist.broadcast_object_list(box, src=0)
            goes_on = torch.full((1,), float(dist.get_rank() == 0))
            dist.broadcast(goes_on, src=0)
            if not goes_on.item():
                raise SystemExit("a flag did not come")
            yield box[0]


for x, y in batches():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
