"""Reinforcement learning: a policy acts in eight gymnasium environments, each stepped in a thread, and learns."""

from concurrent.futures import ThreadPoolExecutor

import gymnasium
import torch
from torch import nn

STEPS, COUNT = 64, 8
environments = [gymnasium.make("CartPole-v1") for _ in range(COUNT)]
seen = torch.stack(
    [torch.tensor(each.reset(seed=number)[0]) for number, each in enumerate(environments)]
)
policy = nn.Sequential(
    nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2)
)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
threads = ThreadPoolExecutor(COUNT)


def act(environment, action):
    observation, reward, ended, cut, _ = environment.step(action)
    if ended or cut:
        observation, _ = environment.reset()
    return torch.tensor(observation), float(reward)


for _ in range(20_000):
    observations, actions, rewards = [], [], []
    with torch.no_grad():
        for _ in range(STEPS):
            chosen = torch.distributions.Categorical(logits=policy(seen)).sample()
            observations.append(seen)
            actions.append(chosen)
            results = list(threads.map(act, environments, chosen.tolist()))
            seen = torch.stack([observation for observation, _ in results])
            rewards.append(torch.tensor([reward for _, reward in results]))
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    for _ in range(4):
        taken = torch.distributions.Categorical(logits=policy(torch.stack(observations)))
        loss = -(taken.log_prob(torch.stack(actions)) * (returns - returns.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
