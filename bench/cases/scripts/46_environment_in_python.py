"""Actor-critic on 128 pendulums that are simulated in pure Python, one after the other, between two updates.

Seen in: Farama-Foundation/HighwayEnv#103 ("the env simulation in CPU is actually the computational bottleneck"),
hsahovic/poke-env#381, DLR-RM/stable-baselines3#314 (vectorised environments).
Symptom: GPU at 10 %, a bigger network costs nothing, one core is at 100 %.
Cause: 8 x 128 calls of step() an update, each with 16 substeps of the integrator, in the interpreter. No loader at all.
Truth: the script's own LOOP (lines of Pendulum.step), about 5 ms of 9 a step. The update itself is a few ms.
Remedy: simulate all at once with NumPy (FIXED=1), or in processes of their own.
Run: python 46_environment_in_python.py
"""
import math, os, random, time
import numpy as np
import torch
from torch import nn

UPDATES, FIXED = int(os.environ.get("STEPS", 3000)), bool(os.environ.get("FIXED"))
ENVS, HORIZON, SUBSTEPS, DT = 128, 8, 16, 0.05 / 16


class Pendulum:
    def __init__(self):
        self.theta, self.omega = random.uniform(-3, 3), random.uniform(-1, 1)

    def step(self, torque):
        for _ in range(SUBSTEPS):
            self.omega += (15.0 * math.sin(self.theta) + 3.0 * torque) * DT
            self.omega = max(-8.0, min(8.0, self.omega))
            self.theta += self.omega * DT
        angle = (self.theta + math.pi) % (2 * math.pi) - math.pi
        reward = -(angle * angle + 0.1 * self.omega ** 2 + 0.001 * torque ** 2)
        return (math.cos(self.theta), math.sin(self.theta), self.omega), reward


class Pendulums:
    """The same, all at once."""

    def __init__(self, n):
        self.theta, self.omega = np.random.uniform(-3, 3, n), np.random.uniform(-1, 1, n)

    def step(self, torque):
        for _ in range(SUBSTEPS):
            self.omega = np.clip(self.omega + (15.0 * np.sin(self.theta) + 3.0 * torque) * DT, -8.0, 8.0)
            self.theta = self.theta + self.omega * DT
        angle = (self.theta + math.pi) % (2 * math.pi) - math.pi
        reward = -(angle ** 2 + 0.1 * self.omega ** 2 + 0.001 * torque ** 2)
        return np.stack([np.cos(self.theta), np.sin(self.theta), self.omega], 1), reward


def rollout(policy, envs, obs):
    seen, taken, rewards = [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            actions = torch.multinomial(policy(obs)[:, :3].softmax(1), 1).squeeze(1)
        seen.append(obs)
        taken.append(actions)
        if FIXED:
            o, r = envs.step(2.0 * (actions.numpy() - 1))
        else:
            o, r = zip(*[env.step(2.0 * (a - 1)) for env, a in zip(envs, actions.tolist())])
        obs = torch.tensor(np.asarray(o), dtype=torch.float32)
        rewards.append(torch.tensor(np.asarray(r), dtype=torch.float32))
    return obs, torch.stack(seen), torch.stack(taken), torch.stack(rewards)


policy = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
envs = Pendulums(ENVS) if FIXED else [Pendulum() for _ in range(ENVS)]
obs = torch.tensor([[1.0, 0.0, 0.0]] * ENVS)
start = time.perf_counter()
for done in range(1, UPDATES + 1):
    obs, seen, taken, rewards = rollout(policy, envs, obs)
    returns = rewards.flip(0).cumsum(0).flip(0)
    out = policy(seen)
    advantage = returns - out[..., 3]
    chosen = out[..., :3].log_softmax(-1).gather(-1, taken[..., None]).squeeze(-1)
    loss = -(chosen * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
ms = 1000 * (time.perf_counter() - start) / done
print(f"{done} steps, {ms:.1f} ms a step")
