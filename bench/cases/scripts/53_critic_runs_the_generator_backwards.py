"""WGAN: the fakes of the critic's steps keep their graph, so each critic update also runs backward through the generator.

Seen in: pytorch/examples#116 ("why is detach necessary": "done for speed"), yunjey/pytorch-tutorial#56 ("speeds up the
training, but ... trivial"), akanimax/msg-gan-v1#4 ("no need to compute generator gradients when training discriminator").
Symptom: with a large generator and five critic updates an iteration, training is twice as slow as other people's code.
Cause: no detach/no_grad: critic_loss.backward() computes gradients of all the generator's weights, which zero_grad throws away.
Truth: BACKWARD of the critic's steps: about half of an iteration is waste; the critic itself is small.
Remedy: make fakes under torch.no_grad() in the critic's steps (FIXED=1).
Run: python 53_critic_runs_the_generator_backwards.py
"""
import argparse, contextlib, os, time
import torch
from torch import nn

FIXED = bool(os.environ.get("FIXED"))


def make_generator(latent, width, pixels):
    return nn.Sequential(nn.Linear(latent, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
                         nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, pixels), nn.Tanh())


def make_critic(pixels, width):
    return nn.Sequential(nn.Linear(pixels, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))


class WGAN:
    def __init__(self, opt):
        self.opt = opt
        self.generator = make_generator(opt.latent, 1024, opt.pixels)
        self.critic = make_critic(opt.pixels, 128)
        self.optimizer_g = torch.optim.RMSprop(self.generator.parameters(), lr=opt.lr)
        self.optimizer_d = torch.optim.RMSprop(self.critic.parameters(), lr=opt.lr)

    def noise(self):
        return torch.randn(self.opt.batch, self.opt.latent)

    def critic_step(self, real):
        self.optimizer_d.zero_grad()
        with torch.no_grad() if FIXED else contextlib.nullcontext():
            fake = self.generator(self.noise())
        critic_loss = self.critic(fake).mean() - self.critic(real).mean()
        critic_loss.backward()
        self.optimizer_d.step()
        with torch.no_grad():
            for p in self.critic.parameters():
                p.clamp_(-self.opt.clip, self.opt.clip)
        return critic_loss.detach()

    def generator_step(self):
        self.optimizer_g.zero_grad()
        generator_loss = -self.critic(self.generator(self.noise())).mean()
        generator_loss.backward()
        self.optimizer_g.step()
        return generator_loss.detach()


def real_batches(images, batch):
    while True:
        order = torch.randperm(len(images))
        for rows in order.split(batch):
            if len(rows) == batch:
                yield images[rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", 180)), help="generator iterations")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--latent", type=int, default=128)
    parser.add_argument("--pixels", type=int, default=3 * 32 * 32)
    parser.add_argument("--n-critic", type=int, default=5)
    parser.add_argument("--clip", type=float, default=0.01)
    parser.add_argument("--lr", type=float, default=5e-5)
    opt = parser.parse_args()
    torch.manual_seed(0)
    images = torch.rand(2048, opt.pixels) * 2 - 1
    gan = WGAN(opt)
    batches = real_batches(images, opt.batch)
    start = time.perf_counter()
    for iteration in range(1, opt.steps + 1):
        for _ in range(opt.n_critic):
            critic_loss = gan.critic_step(next(batches))
        generator_loss = gan.generator_step()
        if iteration % 50 == 0:
            print(f"[{iteration}/{opt.steps}] critic {critic_loss:.4f} generator {generator_loss:.4f}", flush=True)
    print(f"steps {opt.steps}, seconds a step {(time.perf_counter() - start) / opt.steps:.4f}")
