#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes test/data/kineto-*.json.gz: traces of torch.profiler that test/t5006-kineto.sh reads.

    python3 contrib/make-kineto-data.py test/data [NAME...]

modules  a perceptron whose updates are of two microbatches, with_stack and record_shapes, data from a DataLoader
labels   record_function() around two blocks, which are recomputed in backward
bare     three blocks behind a sum of embeddings, without stacks: nothing names modules; shapes are there
compiled a perceptron that torch.compile made one graph of, with_stack

Of what the profiler writes, functions of Python that are no modules are left out, and keys that nobody reads.
"""
import gzip
import json
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

KEPT = ("Sequence number", "Fwd thread id", "Input Dims", "Input type", "External id")


def trimmed(events):
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in ("cpu_op", "user_annotation", "python_function"):
            continue
        if event["cat"] == "python_function" and not event["name"].startswith("nn.Module: "):
            continue
        event["args"] = {key: value for key, value in event["args"].items() if key in KEPT}
        yield event


def record(file, step, steps=3, **options):
    """Profiles so many steps, behind two that are not, and writes what is left of the trace."""
    with tempfile.TemporaryDirectory() as folder:
        raw = os.path.join(folder, "raw.json")
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=steps, repeat=1),
                     on_trace_ready=lambda made: made.export_chrome_trace(raw), **options) as prof:
            for _ in range(steps + 2):
                step()
                prof.step()
        with open(raw, encoding="utf-8") as opened:
            trace = json.load(opened)
    trace["traceEvents"] = list(trimmed(trace["traceEvents"]))
    for key in ("host_name", "traceName", "trace_id"):
        trace.pop(key, None)
    with open(file, "wb") as out, gzip.GzipFile("", "wb", mtime=0, fileobj=out) as packed:
        packed.write(json.dumps(trace, separators=(",", ":")).encode())


def modules(file):
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = iter(DataLoader(TensorDataset(torch.randn(64, 64), torch.randint(10, (64,))), batch_size=4))

    def step():
        for _ in range(2):
            images, labels = next(data)
            (F.cross_entropy(net(images), labels) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    record(file, step, with_stack=True, record_shapes=True)


class Block(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.up, self.down = name, nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        with record_function(self.name):
            return x + self.down(F.gelu(self.up(x)))


def labels(file):
    blocks, head = nn.ModuleList([Block("block.0"), Block("block.1")]), nn.Linear(32, 10)
    optimizer = torch.optim.AdamW([*blocks.parameters(), *head.parameters()])
    images, classes = torch.randn(8, 32, requires_grad=True), torch.randint(10, (8,))

    def step():
        optimizer.zero_grad()
        x = images
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        F.cross_entropy(head(x), classes).backward()
        optimizer.step()

    record(file, step)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def bare(file):
    words, places, head = nn.Embedding(10, 8), nn.Embedding(4, 8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 10))
    blocks = nn.Sequential(*[Residual() for _ in range(3)])
    parameters = [p for part in (words, places, blocks, head) for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    tokens = torch.randint(10, (2, 4))

    def step():
        optimizer.zero_grad()
        scores = head(blocks(words(tokens) + places(torch.arange(4))))
        F.cross_entropy(scores.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    record(file, step, record_shapes=True)


def compiled(file):
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled_net = torch.compile(net)
    images, classes = torch.randn(4, 8), torch.randint(10, (4,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(compiled_net(images), classes).backward()
        optimizer.step()

    record(file, step, with_stack=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for make in (modules, labels, bare, compiled):
        if sys.argv[2:] and make.__name__ not in sys.argv[2:]:
            continue
        make(os.path.join(sys.argv[1], f"kineto-{make.__name__}.json.gz"))


if __name__ == "__main__":
    main()
