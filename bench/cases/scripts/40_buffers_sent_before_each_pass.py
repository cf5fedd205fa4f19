"""DDP sends all buffers from rank 0 before every forward pass, among them a large table that never changes.

Seen in: ultralytics/ultralytics#24410 (starved GPUs without NVLink), pytorch/pytorch#30718, facebookresearch/maskrcnn-benchmark#692.
Symptom: two ranks are slower than one; gradients are small.
Cause: broadcast_buffers=True (the default) with 32 MB of buffers.
Truth: INTERCONNECT that is not the gradients'.
Remedy: broadcast_buffers=False (FIXED=1).
Run: torchrun --standalone --nproc-per-node 2 40_buffers_sent_before_each_pass.py
"""
import os, time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 120)), bool(os.environ.get("FIXED"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 10))
        self.register_buffer("table", torch.randn(8192, 1024))

    def forward(self, x):
        return self.net(x) + self.table[0, :10]


dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(dist.get_rank())
loader = DataLoader(TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,))), 64, shuffle=True)
model = DistributedDataParallel(Net(), broadcast_buffers=not FIXED)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done, start = 0, time.perf_counter()
while done < STEPS:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        done += 1
        if done == STEPS:
            break
if dist.get_rank() == 0:
    print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
dist.barrier()
del model, optimizer
dist.destroy_process_group()
