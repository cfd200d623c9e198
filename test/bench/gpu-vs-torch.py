# SPDX-License-Identifier: Apache-2.0
"""gpu-vs-torch.py MODEL.json BATCH-SIZE STEPS f32|tf32|bf16|f16 WHAT...: prints each WHAT and its
figure, a line each, as soon as it is known, of training steps of a pd-model in PyTorch on a GPU.
eager, compiled, pure: samples per second on data that lie on the GPU; the median over the steps
after ten that warm up.  A step is timed with events, as ours are.  bf16 and f16 are autocast,
channels last; pure: the whole net and its optimizer in that type.
rate: operations per second of a large product of matrices of that type.
work: operations of convolutions, linear layers and attention in a training step, per sample."""
import contextlib
import importlib.util
import json
import os
import statistics
import sys

import torch
import torch.nn.functional as F



def beside(name):
    """The module of a file in this folder."""
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cpu_vs_torch, sequences = beside("cpu-vs-torch"), beside("sequences-vs-torch")

WARM_UP = 10
SIDE = 8192     # of the matrices
TYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def timed(step, steps):
    """Seconds, the median of so many steps."""
    times = []
    for number in range(-WARM_UP, steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        if number >= 0:
            times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def rate(steps, dtype):
    a, b = (torch.rand(SIDE, SIDE, device="cuda").to(dtype) for _ in range(2))
    return 2 * SIDE ** 3 / timed(lambda: torch.matmul(a, b), steps)


def is_gpt(model):
    return any(layer["kind"] == "attention" for layer in model["layers"])


def made(model, batch):
    """The network, and a minibatch of what goes in and what shall come out."""
    if is_gpt(model):
        net = sequences.Gpt(model)
        x = torch.arange(batch * net.tokens).reshape(batch, -1) * 7919 % net.vocabulary
        return net, x, x.roll(-1, 1)
    return (cpu_vs_torch.Net(model), torch.rand([batch] + model["inputs"][0]["shape"]) * 2 - 1,
            torch.arange(batch) % 10)


def work(model):
    """Forward; backward twice that, less the gradient of the input of the first such layer where
    that is the data.  Of a causal attention, what is not masked."""
    total, first = 0, None

    def count(part, inputs, output):
        nonlocal total, first
        operations = 2 * output.numel() * part.weight[0].numel()
        first = operations if first is None else first
        total += 3 * operations

    def count_attention(block, inputs, output):
        nonlocal total
        tokens, width = output.shape[-2:]
        total += 3 * 2 * 2 * width * tokens * (tokens + 1) // 2

    net, x, _ = made(model, 1)
    for part in net.eval().modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear)):
            part.register_forward_hook(count)
        elif isinstance(part, sequences.Block):
            part.register_forward_hook(count_attention)
    with torch.no_grad():
        net(x)
    return total if is_gpt(model) else total - first


def samples_per_s(model, batch, steps, how, name):
    dtype, short = TYPES[name], name in ("bf16", "f16")
    net, x, y = (what.cuda() for what in made(model, batch))
    if short and x.dim() == 4:
        net, x = (what.to(memory_format=torch.channels_last) for what in (net, x))
    if how == "pure":
        net, x = net.to(dtype), x.to(dtype) if x.is_floating_point() else x
    run = torch.compile(net) if how == "compiled" else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=name == "f16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype) if short and how != "pure" else contextlib.nullcontext():
            out = run(x).float()
            loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return batch / timed(step, steps)


def main():
    model = json.load(open(sys.argv[1]))
    batch, steps, name = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name != "f32"
    torch.backends.cudnn.benchmark = True
    for what in sys.argv[5:]:
        if what == "rate":
            figure = f"{rate(steps, TYPES[name]):.6g}"
        elif what == "work":
            figure = work(model)
        else:
            figure = f"{samples_per_s(model, batch, steps, what, name):.1f}"
        print(what, figure, flush=True)


if __name__ == "__main__":
    main()
