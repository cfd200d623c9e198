# SPDX-License-Identifier: Apache-2.0
"""sequences-vs-torch.py MODEL.json STEPS f32|bf16 THREADS ROUNDS SPEED: a line of
sequences-vs-torch.sh's table.  MODEL.json is named gpt or lstm; what stands here is the same network
as people write it in PyTorch.  SPEED is test/bench/speed."""
import importlib.util
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

_spec = importlib.util.spec_from_file_location(
    "cpu_vs_torch", pathlib.Path(__file__).with_name("cpu-vs-torch.py"))
bench = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    batch, tokens, vocabulary = 8, 256, 256

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(256, 256), torch.nn.Embedding(256, 256)
        self.blocks = torch.nn.Sequential(*(Block(256, 8) for _ in range(6)))
        self.norm, self.head = torch.nn.LayerNorm(256), torch.nn.Linear(256, 256, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places.weight[:x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Lstm(torch.nn.Module):
    batch, tokens, vocabulary = 20, 70, 10000

    def __init__(self):
        super().__init__()
        self.words, self.head = torch.nn.Embedding(10000, 400), torch.nn.Linear(400, 10000)
        self.head.weight = self.words.weight
        self.lstms = torch.nn.ModuleList(torch.nn.LSTM(i, o, batch_first=True) for i, o in
                                         ((400, 1150), (1150, 1150), (1150, 400)))

    def forward(self, x):
        x = self.words(x)
        for lstm in self.lstms:
            x = lstm(x)[0]
        return self.head(x)


class Way(bench.Way):
    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            loss = F.cross_entropy(self.run(self.x).float().flatten(0, 1), self.y.flatten())
        loss.backward()
        self.optimizer.step()


def parameters_of(model):
    return {"gpt": Gpt, "lstm": Lstm}[model["name"]]


def main():
    file, steps, name, threads, rounds, speed = sys.argv[1:]
    model = json.load(open(file))
    torch.set_num_threads(int(threads))
    net = parameters_of(model)()
    x = torch.arange(net.batch * net.tokens).reshape(net.batch, -1) * 7919 % 251
    y = torch.arange(net.batch * net.tokens).reshape(net.batch, -1) % 10
    ways = {
        "ours": bench.Ours([speed, file, str(net.batch), steps, "cpu", threads, name]),
        "eager": Way(net, net, bench.TYPES[name], x, y),
        "compiled": Way(net, torch.compile(net), bench.TYPES[name], x, y),
    }
    bench.compare(model["name"], str(net.batch), name, ways, int(steps), int(rounds))


if __name__ == "__main__":
    main()
