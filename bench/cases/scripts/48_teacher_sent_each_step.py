"""Distillation: before every step rank 0 sends the frozen teacher to the other rank, 15 MB that never change.

Seen in: huawei-noah/Pretrained-Language-Model#106 (the teacher need not be synchronised at all), facebookresearch/unbiased-teacher#31
(worry that teachers of the ranks drift apart), pytorch/pytorch#4978 (module states sent one by one), ecmwf/anemoi-core#1278.
Symptom: time of a step grows with the teacher, though its forward pass is cheap; DDP's own exchange is small.
Cause: a helper that makes ranks alike at start stands in the loop.
Truth: LOOP (or INTERCONNECT that is not the gradients'): about 10 ms of 15 a step.
Remedy: once, before the loop (FIXED=1).
Run: torchrun --standalone --nproc-per-node 2 48_teacher_sent_each_step.py
"""
import os, time
import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

distributed.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(distributed.get_rank())
steps, once = int(os.environ.get("STEPS", 3000)), bool(os.environ.get("FIXED"))


def text_model(vocabulary, width, hidden, depth):
    body = [layer for _ in range(depth) for layer in (nn.Linear(hidden, hidden), nn.GELU())]
    return nn.Sequential(nn.EmbeddingBag(vocabulary, width), nn.Linear(width, hidden), nn.GELU(), *body, nn.Linear(hidden, 64))


teacher = text_model(40_000, 96, 192, 4).eval().requires_grad_(False)
student = nn.parallel.DistributedDataParallel(text_model(1024, 48, 96, 2))


def same_teacher_everywhere():
    for tensor in teacher.state_dict().values():
        distributed.broadcast(tensor, src=0)


sentences = DataLoader(TensorDataset(torch.randint(40_000, (5120, 20))), 40, shuffle=True)
optimizer = torch.optim.Adagrad(student.parameters(), 0.01)
if once:
    same_teacher_everywhere()

done, start = 0, time.perf_counter()
while done != steps:
    for (ids,) in sentences:
        if not once:
            same_teacher_everywhere()
        with torch.no_grad():
            wanted = F.softmax(teacher(ids) / 2, 1)
        given = F.log_softmax(student(ids % 1024) / 2, 1)
        optimizer.zero_grad()
        F.kl_div(given, wanted, reduction="batchmean").backward()
        optimizer.step()
        done += 1
        if done == steps:
            break

ms = 1000 * (time.perf_counter() - start) / done
if distributed.get_rank() == 0:
    print(f"{done} steps, {ms:.1f} ms a step", flush=True)
distributed.barrier()
del student, optimizer
distributed.destroy_process_group()
