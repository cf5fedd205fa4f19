"""A moving average of the weights walks through two state dicts after each step, tensor by tensor.

Seen in: ecmwf/WeatherGenerator#2520 and #2551 (100 -> 10 ms an update), open-mmlab/mmengine#281 (20 ms an iteration),
lucidrains/ema-pytorch#5, deepmodeling/deepmd-kit#5818 (one lerp_ for each tensor, names walked in the hot path).
Symptom: switching EMA on makes the step several times as long, though a domain's adapter is tiny.
Cause: 1200 small tensors, of which a batch trains six; the average updates them all, four operations each, from Python.
Truth: the script's own LOOP, after optimizer.step(): about 15 ms of 17 a step.
Remedy: one torch._foreach_lerp_ over lists made once (FIXED=1), or every 10 steps.
Run: python 43_average_walks_through_state_dicts.py
"""
import copy, os, time
import torch
from torch import nn

DOMAINS, WIDTH, BATCH = 300, 64, 64


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x):
        return x + self.up(torch.relu(self.down(x)))


class MultiDomainNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(200, 400), nn.ReLU(), nn.Linear(400, WIDTH))
        self.adapters = nn.ModuleList(Adapter() for _ in range(DOMAINS))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x, domain):
        return self.head(self.adapters[domain](self.backbone(x)))


class ModelEma:
    def __init__(self, model, decay=0.999):
        self.module, self.decay = copy.deepcopy(model).eval(), decay
        self.fast = bool(os.environ.get("FIXED"))
        self.averages = [p.detach() for p in self.module.parameters()]
        self.values = [p.detach() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        if self.fast:
            torch._foreach_lerp_(self.averages, self.values, 1 - self.decay)
            return
        averages = self.module.state_dict()
        for name, value in model.state_dict().items():
            average = averages[name]
            average.copy_(self.decay * average + (1.0 - self.decay) * value)


def main(steps=int(os.environ.get("STEPS", 4000))):
    torch.manual_seed(1)
    features, clicks = torch.randn(20000, 200), torch.randint(0, 2, (20000,))
    model = MultiDomainNet()
    ema = ModelEma(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    start = time.perf_counter()
    for done in range(1, steps + 1):
        rows = torch.randint(0, len(features), (BATCH,))
        logits = model(features[rows], domain=done % DOMAINS)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, clicks[rows]).backward()
        optimizer.step()
        ema.update(model)
    ms = 1000 * (time.perf_counter() - start) / done
    print(f"{done} steps, {ms:.1f} ms a step")


main()
