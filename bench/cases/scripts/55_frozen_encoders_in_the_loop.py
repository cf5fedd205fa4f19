"""Fine-tuning a latent diffusion model: frozen image and text encoders run for the same few pictures in each step.

Reported for: DreamBooth and LoRA scripts (huggingface/diffusers#6076 "Cache latents to avoid VAE passes for every training
step", #1936, #3461: 35 % slower than a fork that caches; d8ahazard/sd_dreambooth_extension#505).
Symptom: training a small adapter or a small U-Net is hardly faster than a large one; most of the time is spent under no_grad.
Cause: 96 pictures, seen again every 24 steps, are encoded again each time, and so are their prompts; neither encoder is trained.
Planted stall: vae.encode and the text encoder before the U-Net's forward, some 70 % of the step.
Remedy: encode pictures and prompts once before the loop (FIXED=1).
Run: python 55_frozen_encoders_in_the_loop.py
"""
import argparse
import math
import os
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, TOKENS, SCALING = 2000, 77, 0.18215


class ResBlock(nn.Module):
    def __init__(self, channels, embedding=None):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(embedding, channels) if embedding else None

    def forward(self, x, t=None):
        h = self.conv1(F.silu(self.norm1(x)))
        if self.time is not None:
            h = h + self.time(t)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class AutoencoderKL(nn.Module):
    """The encoding half; 64 x 64 pictures to 4 x 16 x 16 latents."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), ResBlock(64),
                                     nn.Conv2d(64, 96, 3, stride=2, padding=1), ResBlock(96),
                                     nn.Conv2d(96, 128, 3, stride=2, padding=1), ResBlock(128),
                                     nn.GroupNorm(8, 128), nn.SiLU(), nn.Conv2d(128, 4, 3, padding=1))

    def encode(self, pictures):
        return self.encoder(pictures)


class UNet(nn.Module):
    def __init__(self, channels=64, context=256, embedding=128):
        super().__init__()
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.conv_in = nn.Conv2d(4, channels, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(channels, embedding) for _ in range(4))
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, 4, kdim=context, vdim=context, batch_first=True)
        self.conv_out = nn.Conv2d(channels, 4, 3, padding=1)

    def embed(self, timesteps):
        half = self.channels // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half) / half)
        angles = timesteps[:, None].float() * rates
        return self.time(torch.cat([angles.sin(), angles.cos()], dim=1))

    def forward(self, latents, timesteps, hidden_states):
        t = self.embed(timesteps)
        h = self.conv_in(latents)
        for i, block in enumerate(self.blocks):
            h = block(h, t)
            if i == 1:
                flat = h.flatten(2).transpose(1, 2)
                attended, _ = self.attention(self.norm(flat), hidden_states, hidden_states, need_weights=False)
                h = (flat + attended).transpose(1, 2).reshape(h.shape)
        return self.conv_out(F.silu(h))


class DreamBoothDataset(Dataset):
    def __init__(self, n):
        generator = torch.Generator().manual_seed(9)
        self.pictures = torch.rand(n, 3, 64, 64, generator=generator) * 2 - 1
        self.prompts = torch.randint(2, VOCABULARY - 2, (n, TOKENS), generator=generator)
        self.prompts[:, -1] = VOCABULARY - 1

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return {"pixel_values": self.pictures[i], "input_ids": self.prompts[i]}


class EncodedDataset(Dataset):
    """The same, encoded once."""

    def __init__(self, dataset, vae, text_encoder, batch_size):
        latents, hidden = [], []
        for batch in DataLoader(dataset, batch_size):
            a, b = encode(batch, vae, text_encoder)
            latents.append(a)
            hidden.append(b)
        self.latents, self.hidden = torch.cat(latents), torch.cat(hidden)

    def __len__(self):
        return len(self.latents)

    def __getitem__(self, i):
        return {"latents": self.latents[i], "hidden_states": self.hidden[i]}


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 256)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 4)

    def forward(self, tokens):
        return (self.layers(self.tokens(tokens)),)


@torch.no_grad()
def encode(batch, vae, text_encoder):
    latents = vae.encode(batch["pixel_values"]) * SCALING
    hidden_states = text_encoder(batch["input_ids"])[0]
    return latents, hidden_states


def parse_args():
    parser = argparse.ArgumentParser(description="DreamBooth")
    parser.add_argument("--max_train_steps", type=int, default=int(os.environ.get("STEPS", 240)))
    parser.add_argument("--train_batch_size", type=int, default=4)
    parser.add_argument("--num_images", type=int, default=96)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--num_train_timesteps", type=int, default=1000)
    parser.add_argument("--cache_latents", action="store_true", default=bool(os.environ.get("FIXED")))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main(args):
    torch.manual_seed(args.seed)

    vae = AutoencoderKL().requires_grad_(False).eval()
    text_encoder = TextEncoder()
    text_encoder.requires_grad_(False)
    text_encoder.eval()
    unet = UNet()

    dataset = DreamBoothDataset(args.num_images)
    if args.cache_latents:
        dataset = EncodedDataset(dataset, vae, text_encoder, args.train_batch_size)
    train_dataloader = DataLoader(dataset, args.train_batch_size, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=args.learning_rate, weight_decay=1e-2)

    betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, args.num_train_timesteps) ** 2
    alphas = torch.cumprod(1 - betas, dim=0)

    global_step = 0
    num_epochs = math.ceil(args.max_train_steps / len(train_dataloader))
    begin = time.perf_counter()
    for epoch in range(num_epochs):
        unet.train()
        for batch in train_dataloader:
            if args.cache_latents:
                latents, hidden_states = batch["latents"], batch["hidden_states"]
            else:
                latents, hidden_states = encode(batch, vae, text_encoder)
            noise = torch.randn_like(latents)
            timesteps = torch.randint(0, args.num_train_timesteps, (len(latents),))
            kept = alphas[timesteps][:, None, None, None]
            noisy_latents = kept.sqrt() * latents + (1 - kept).sqrt() * noise

            model_pred = unet(noisy_latents, timesteps, hidden_states)
            loss = F.mse_loss(model_pred, noise)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            global_step += 1
            if global_step % 60 == 0:
                print(f"epoch {epoch} step {global_step}: loss {loss.item():.4f}", flush=True)
            if global_step >= args.max_train_steps:
                break
    seconds = time.perf_counter() - begin
    print(f"steps {global_step}, seconds a step {seconds / global_step:.4f}", flush=True)


if __name__ == "__main__":
    main(parse_args())
