"""A thread of the script's works in pure Python all the time, and the training thread waits for the interpreter.

Symptom: steps take several times as long as in a smaller script; CPUs are not busy; py-spy shows the training thread anywhere.
Cause: each of a step's hundreds of calls into PyTorch gives the interpreter up, and gets it back 5 ms later.
Truth: HOST: about 111 ms a step that the training thread is ready to run and does not. Not compute: faster devices bring nothing.
Remedy: a process of its own (FIXED=1).
Run: python 28_thread_holds_the_interpreter.py
"""
import multiprocessing, os, threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 100)), bool(os.environ.get("FIXED"))


def watch_everything():
    state = 1
    while True:                                    # parses logs, scores candidates, ...
        state = (state * 48271) % 2147483647


if __name__ == "__main__":
    if FIXED:
        multiprocessing.get_context("spawn").Process(target=watch_everything, daemon=True).start()
    else:
        threading.Thread(target=watch_everything, daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,))), 32, shuffle=True)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
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
    print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
