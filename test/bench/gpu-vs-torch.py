# SPDX-License-Identifier: Apache-2.0
"""gpu-vs-torch.py MODEL.json BATCH-SIZE STEPS eager|compiled: samples per second of training
steps of a pd-model in PyTorch on a GPU, f32 with TF32 allowed, on data that lie on the GPU; the
median over the steps after ten that warm up.  A step is timed with events, as ours are."""
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


def main():
    model = json.load(open(sys.argv[1]))
    batch, steps, how = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    net = cpu_vs_torch.Net(model).cuda()
    run = torch.compile(net) if how == "compiled" else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    x = (torch.rand([batch] + model["inputs"][0]["shape"]) * 2 - 1).cuda()
    y = (torch.arange(batch) % 10).cuda()
    times = []
    for step in range(-WARM_UP, steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(run(x), y).backward()
        optimizer.step()
        end.record()
        torch.cuda.synchronize()
        if step >= 0:
            times.append(begin.elapsed_time(end) / 1e3)
    print(f"{batch / statistics.median(times):.1f}")


main()
