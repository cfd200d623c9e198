# SPDX-License-Identifier: Apache-2.0
"""sequences-vs-torch.py MODEL.json STEPS f32|bf16 THREADS ROUNDS SPEED [memory]: a line of
sequences-vs-torch.sh's table, or of that of memory.  MODEL.json is named gpt, lstm or gnmt; what
stands here is the same network as people write it in PyTorch.  SPEED is test/bench/speed."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import time

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
    """Of pd-model's gpt and gpt-bytes, with the sizes of such a document."""
    batch = 8

    def __init__(self, model):
        super().__init__()
        layers = {layer["name"]: layer for layer in model["layers"]}
        heads = [layer["heads"] for layer in model["layers"] if layer["kind"] == "attention"]
        width, self.vocabulary = layers["wte"]["embedding_dim"], layers["wte"]["num_embeddings"]
        self.tokens = model["inputs"][0]["shape"][0]
        self.words = torch.nn.Embedding(self.vocabulary, width)
        self.places = torch.nn.Embedding(self.tokens, width)
        self.blocks = torch.nn.Sequential(*(Block(width, n) for n in heads))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, self.vocabulary, bias=False)
        if "shares" in layers["head"]:
            self.head.weight = self.words.weight
        for embedding in self.words, self.places:
            torch.nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x):
        x = self.words(x) + self.places.weight[:x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class Lstm(torch.nn.Module):
    batch, tokens, vocabulary = 20, 70, 10000

    def __init__(self, sizes=(400, 1150, 1150, 400), vocabulary=10000, tied=True):
        super().__init__()
        self.words = torch.nn.Embedding(vocabulary, sizes[0])
        self.head = torch.nn.Linear(sizes[-1], vocabulary)
        if tied:
            self.head.weight = self.words.weight
        self.lstms = torch.nn.ModuleList(torch.nn.LSTM(i, o, batch_first=True)
                                         for i, o in zip(sizes, sizes[1:]))

    def forward(self, x):
        x = self.words(x)
        for lstm in self.lstms:
            x = lstm(x)[0]
        return self.head(x)


class Attention(torch.nn.Module):
    """Normalised additive attention."""
    def __init__(self, width):
        super().__init__()
        self.query, self.key = (torch.nn.Linear(width, width, bias=False) for _ in range(2))
        self.bias, self.weight = (torch.nn.Parameter(torch.rand(width) / 16) for _ in range(2))
        self.scale = torch.nn.Parameter(torch.tensor(width ** -0.5))

    def forward(self, q, k):
        sums = self.query(q)[:, :, None] + self.key(k)[:, None] + self.bias
        scores = torch.tanh(sums) @ (self.scale / self.weight.norm() * self.weight)
        return scores.softmax(-1) @ k


class Gnmt(torch.nn.Module):
    batch, tokens, vocabulary = 32, 50, 32320
    loss = {"ignore_index": 0, "label_smoothing": 0.1}

    def __init__(self):
        super().__init__()
        def lstm(width, **more):
            return torch.nn.LSTM(width, 256, batch_first=True, **more)
        self.words = torch.nn.ModuleList(torch.nn.Embedding(32320, 256, padding_idx=0)
                                         for _ in range(2))
        self.encoder = torch.nn.ModuleList(
            [lstm(256, bidirectional=True), lstm(512), lstm(256), lstm(256)])
        self.decoder = torch.nn.ModuleList([lstm(256)] + [lstm(512) for _ in range(3)])
        self.attention, self.head = Attention(256), torch.nn.Linear(256, 32320)

    def forward(self, source, target):
        x = self.encoder[1](self.encoder[0](self.words[0](source))[0])[0]
        for lstm in self.encoder[2:]:
            x = lstm(x)[0] + x
        y = self.decoder[0](self.words[1](target))[0]
        context = self.attention(y, x)
        y = self.decoder[1](torch.cat((y, context), -1))[0]
        for lstm in self.decoder[2:]:
            y = lstm(torch.cat((y, context), -1))[0] + y
        return self.head(y)


class Way(bench.Way):
    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", self.dtype, enabled=self.dtype != torch.float32):
            loss = F.cross_entropy(self.run(*self.x).float().flatten(0, 1), self.y.flatten(),
                                   **getattr(self.net, "loss", {}))
        loss.backward()
        self.optimizer.step()


def network_of(model):
    return {"gpt": lambda: Gpt(model), "lstm": Lstm, "gnmt": Gnmt}[model["name"]]()


def peak_mb(command):
    """The most that the process had resident, as it says itself until it ends."""
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        status = pathlib.Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            for line in status.read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peak = max(peak, int(line.split()[1]))
            time.sleep(0.002)
    if process.returncode != 0:
        sys.exit(f"{command[0]}: exit status {process.returncode}")
    return peak / 1024


def memory(model, net):
    """Each in a process of its own; the one that runs no step is PyTorch without a network."""
    file, steps, name, threads, _, speed = sys.argv[1:7]
    torchs = [peak_mb([sys.executable] + sys.argv[:7] + [way])
              for way in ("eager", "compiled", "none")]
    ours = peak_mb([speed, file, str(net.batch), steps, "cpu", threads, name])
    print(f"{model['name']:12} {net.batch:5} {name:4}  {ours:8.0f}", *(f"{mb:8.0f}" for mb in torchs),
          flush=True)


def main():
    file, steps, name, threads, rounds, speed = sys.argv[1:7]
    if sys.argv[7:] == ["none"]:
        return
    model = json.load(open(file))
    torch.set_num_threads(int(threads))
    net = network_of(model)
    x = torch.arange(net.batch * net.tokens).reshape(net.batch, -1) * 7919 % 251
    y = torch.arange(net.batch * net.tokens).reshape(net.batch, -1) % 10
    x = (x, y)[:len(model["inputs"]) - 1]
    if sys.argv[7:] == ["memory"]:
        memory(model, net)
        return
    if sys.argv[7:]:
        run = torch.compile(net) if sys.argv[7] == "compiled" else net
        Way(net, run, bench.TYPES[name], x, y).round(int(steps))
        return
    ways = {
        "ours": bench.Ours([speed, file, str(net.batch), steps, "cpu", threads, name]),
        "eager": Way(net, net, bench.TYPES[name], x, y),
        "compiled": Way(net, torch.compile(net), bench.TYPES[name], x, y),
    }
    bench.compare(model["name"], str(net.batch), name, ways, int(steps), int(rounds))


if __name__ == "__main__":
    main()
