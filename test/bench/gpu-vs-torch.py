# SPDX-License-Identifier: Apache-2.0
"""gpu-vs-torch.py MODEL.json BATCH-SIZE STEPS eager|compiled|pure f32|tf32|bf16|f16: samples per
second of training steps of a pd-model in PyTorch on a GPU, on data that lie on the GPU; the median
over the steps after ten that warm up.  A step is timed with events, as ours are.  bf16 and f16 are
autocast, channels last; pure: the whole net and its optimizer in that type.
... rate TYPE: operations per second of a large product of matrices of that type.
... work TYPE: operations of convolutions and linear layers in a training step, per sample."""
import contextlib
import importlib.util
import json
import os
import statistics
import sys

import torch
import torch.nn.functional as F

spec = importlib.util.spec_from_file_location(
    "cpu_vs_torch", os.path.join(os.path.dirname(os.path.abspath(__file__)), "cpu-vs-torch.py"))
cpu_vs_torch = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cpu_vs_torch)

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


def work(model):
    """Forward; backward twice that, less the gradient of the input of the first such layer."""
    total, first = 0, None

    def count(part, inputs, output):
        nonlocal total, first
        operations = 2 * output.numel() * part.weight[0].numel()
        first = operations if first is None else first
        total += 3 * operations

    net = cpu_vs_torch.Net(model).eval()
    for part in net.modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.Linear)):
            part.register_forward_hook(count)
    with torch.no_grad():
        net(torch.zeros([1] + model["inputs"][0]["shape"]))
    return total - first


def samples_per_s(model, batch, steps, how, name):
    dtype, short = TYPES[name], name in ("bf16", "f16")
    net = cpu_vs_torch.Net(model).cuda()
    x = (torch.rand([batch] + model["inputs"][0]["shape"]) * 2 - 1).cuda()
    y = (torch.arange(batch) % 10).cuda()
    if short and x.dim() == 4:
        net, x = (what.to(memory_format=torch.channels_last) for what in (net, x))
    if how == "pure":
        net, x = net.to(dtype), x.to(dtype)
    run = torch.compile(net) if how == "compiled" else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=name == "f16")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype) if short and how != "pure" else contextlib.nullcontext():
            loss = F.cross_entropy(run(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return batch / timed(step, steps)


def main():
    model = json.load(open(sys.argv[1]))
    batch, steps, how, name = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name != "f32"
    torch.backends.cudnn.benchmark = True
    if how == "rate":
        print(f"{rate(steps, TYPES[name]):.6g}")
    elif how == "work":
        print(work(model))
    else:
        print(f"{samples_per_s(model, batch, steps, how, name):.1f}")


if __name__ == "__main__":
    main()
