#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A small language model on N ranks with PyTorch's DistributedDataParallel, which survives the death of any of them:
ckpt-run --nproc=2 --store=runs/a -- python3 train_ddp.py [STEPS [TEXT]]
It runs under torchrun, too, with CKPT_STORE set, and begins from zero then."""
import os
import sys

import ckpt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, CONTEXT, BATCH = 128, 64, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x) + self.positions.weight, self.mask))


def samples(text, step, rank, world_size):
    """This rank's share of a step's batch. Where in the text it is depends on nothing but the step."""
    starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=torch.Generator().manual_seed(step))
    return torch.stack([text[start:start + CONTEXT + 1] for start in starts.tolist()[rank::world_size]])


def main(steps=200, path="/usr/share/common-licenses/GPL-3"):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    dist.init_process_group("gloo", init_method="env://")
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    model = Model()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    saver = ckpt.Saver()                                 # the store, the rank and the attempt: from ckpt-run
    # None: from zero. All ranks hold the same, so rank 0's file is good for any number of them. PyTorch 1.13 reads an
    # optimizer's numbers only with weights_only=False, which is for files that you trust.
    state = ckpt.resume(weights_only=False, rank=0)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range((ckpt.resume_step() or 0) + 1, int(steps) + 1):
        batch = samples(text, step, rank, world_size)
        loss = nn.functional.cross_entropy(ddp(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()                                              # DDP sums the gradients up meanwhile
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)            # so it's the same on all ranks
        optimizer.step()
        asked = saver.step(step, loss=loss.item())                   # a sign of life; "save" or "stop" if it's time
        if asked or step == int(steps):
            saver.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, step, replicated=True)
        if rank == 0 and (step % 10 == 0 or asked):
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if asked == "stop":
            break
    saver.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
