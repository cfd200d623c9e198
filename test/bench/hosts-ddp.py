# SPDX-License-Identifier: Apache-2.0
"""hosts-ddp.py MODEL.json BATCH STEPS: one rank of data parallelism as PyTorch does it (DDP over gloo),
started by mpirun; the first prints seconds per step.  The networks are those of cpu-vs-torch.py and
sequences-vs-torch.py."""
import importlib.util
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F


def load(name):
    spec = importlib.util.spec_from_file_location(
        name.replace("-", "_"), pathlib.Path(__file__).with_name(name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def network(model, batch):
    """The network, its input, its labels, and the loss of an output."""
    if model["name"] == "lstm":
        words, *layers = model["layers"]
        sizes = [words["embedding_dim"]] + [layer["hidden_size"] for layer in layers
                                            if layer["kind"] == "lstm"]
        net = load("sequences-vs-torch").Lstm(sizes, words["num_embeddings"], tied=False)
        tokens = model["inputs"][0]["shape"][0]
        x = torch.arange(batch * tokens).reshape(batch, tokens) * 7919 % words["num_embeddings"]
        return net, x, x, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())
    shape = model["inputs"][0]["shape"]
    return (load("cpu-vs-torch").Net(model), torch.randn(batch, *shape), torch.arange(batch) % 10,
            F.cross_entropy)


def main():
    file, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
                            world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
    net, x, y, loss = network(json.load(open(file)), batch)
    parallel = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps + 1):
        if step == 1:   # the first makes buckets and connections
            dist.barrier()
            begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss(parallel(x), y).backward()
        optimizer.step()
    dist.barrier()
    if dist.get_rank() == 0:
        print((time.perf_counter() - begun) / steps)


if __name__ == "__main__":
    main()
