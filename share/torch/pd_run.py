#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a module of PyTorch as a plan says, over torch.distributed.pipelining.

    pd_profile.py net.py:make >net.json
    pd-plan --gpus=2 --straight --weights=flush --microbatches=8 net.json >plan.json
    torchrun --nproc-per-node=2 pd_run.py plan.json net.py:make --steps=20

The function returns the module, the arguments of one microbatch (a tuple), the loss, loss(output, target), and
the targets of one microbatch.  The module is cut where stages of the plan begin, and every rank follows its
row of `pd-schedule --format=torch plan.json` over NCCL where there are GPUs, over gloo where there are none.
The made-up batch of a step is the microbatch, as often as a step has microbatches.  Rank 0 prints one JSON
object: the median time of a step, the losses, and how many bytes each rank's allocator had handed out at most;
with --save=FILE, every rank writes its gradients to FILE.RANK after the first step.
"""
import argparse
import csv
import gc
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import pd_profile       # before PyTorch

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules


def read_plan(file):
    with open(file, encoding="utf-8") as opened:
        plan = json.load(opened)
    if plan.get("format") != "pd-plan":
        raise SystemExit(f"pd_run: {file}: expected a pd-plan document")
    return plan


def cuts(plan, module):
    """Returns where stages begin, as pipeline() wants it."""
    modules, spec = dict(module.named_modules()), {}
    for number, stage in enumerate(plan["stages"][1:], 1):
        name = stage["layers"][0].partition("#")[0]
        if name not in modules or "#" in stage["layers"][0]:
            raise SystemExit(f"pd_run: stage {number} begins with \"{stage['layers'][0]}\", which is no module that is "
                             "called once: profile with --blocks, so that layers are such modules, and plan again")
        spec[name] = pipelining.SplitPoint.BEGINNING
    return spec


def table(plan_file):
    """Returns the file of the schedule's table, and the stages of each rank."""
    made = tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False)
    subprocess.run([os.environ.get("PD_SCHEDULE", "pd-schedule"), "--format=torch", plan_file], stdout=made,
                   check=True)
    made.close()
    with open(made.name, newline="", encoding="utf-8") as file:
        rows = [[schedules._Action.from_str(cell) for cell in row] for row in csv.reader(file)]
    return made.name, [sorted({part.stage_index for action in row if action
                               for part in (action.sub_actions or (action,))}) for row in rows]


OPTIMIZERS = {"sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
              "adamw": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate, fused=True)}


def places(module):
    return {pd_profile.place(t) for t in (*module.parameters(), *module.buffers())}


def held(others):
    """Returns the bytes of all tensors that there are on the processor, but for those of other ranks' stages."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)]
    storages = [t.untyped_storage() for t in tensors if t.device.type == "cpu"]
    return sum({s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in others}.values())


def peak(step, others):
    """Returns the most bytes that the processor's allocator has handed out in two steps, which begin without
    gradients: those of the tensors before, and what torch.profiler sees allocated and freed."""
    before = held(others)
    with pd_profile.Memory(torch.device("cpu")) as memory:
        step()
        step()
    return before + max(most for most, _ in memory.spans())


def repeated(value, times):
    return torch.cat([value] * times) if isinstance(value, torch.Tensor) else value


def train(plan_file, made, steps=10, rate=0.0, save=None, optimizer="sgd"):
    """Trains, and returns a dict: step_ns and losses, on the rank of the last stage; peak_bytes on each."""
    plan = read_plan(plan_file)
    module, args, loss, target = made
    rank, microbatches = dist.get_rank(), plan["microbatches"]
    device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
    pipe = pipelining.pipeline(module, args, split_spec=cuts(plan, module))
    if pipe.num_stages != len(plan["stages"]):
        raise SystemExit(f"pd_run: {pipe.num_stages} stages were cut, the plan has {len(plan['stages'])}")
    file, stages_of = table(plan_file)
    mine = stages_of[rank]
    stages = [pipe.build_stage(s, device) for s in mine]
    run = schedules._PipelineScheduleRuntime(stages, microbatches, loss_fn=loss)
    run._load_csv(file, format="compute_only")
    os.unlink(file)
    optimizers = [OPTIMIZERS[optimizer](list(s.submod.parameters()), rate)
                  for s in stages if any(True for _ in s.submod.parameters())]
    given = [repeated(value, microbatches).to(device) for value in args] if 0 in mine else []
    wanted = {"target": repeated(target, microbatches).to(device)} if len(plan["stages"]) - 1 in mine else {}
    others = places(module).difference(*(places(s.submod) for s in stages))     # what a rank would not load
    spans, losses = [], []
    keep = {"return_outputs": False} if "return_outputs" in inspect.signature(run.step).parameters else {}

    def step(saved=None):
        dist.barrier()
        begun = time.perf_counter_ns()
        of_step = []
        run.step(*given, **wanted, **({"losses": of_step} if wanted else {}), **keep)
        if saved:
            torch.save({name: p.grad for s in stages for name, p in s.submod.named_parameters()}, f"{saved}.{rank}")
        for each in optimizers:
            each.step()
            each.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()
        spans.append(time.perf_counter_ns() - begun)
        losses.append(float(torch.stack(of_step).detach().mean()) if of_step else None)

    for number in range(steps):
        step(save if number == 0 else None)
    result = {"step_ns": round(statistics.median(spans[steps // 4:])), "losses": losses[:]}
    return {**result, "peak_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else peak(step, others)}


def main():
    parser = argparse.ArgumentParser(description="Trains a PyTorch module as a pd-plan(5) says; started by torchrun.")
    parser.add_argument("plan")
    parser.add_argument("what", metavar="FILE.py:FUNCTION",
                        help="a function that returns a module, arguments, loss(output, target) and the targets")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank (1)")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="sgd",
                        help="sgd, with momentum (default), or adamw, fused")
    parser.add_argument("--rate", type=float, default=0.0, help="learning rate (0)")
    parser.add_argument("--save", metavar="FILE", help="write the first step's gradients to FILE.RANK")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(0)
    result = train(options.plan, pd_profile.load(options.what), options.steps, options.rate, options.save,
                   options.optimizer)
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    if dist.get_rank() == 0:
        json.dump({"step_ns": max(r["step_ns"] for r in results),
                   "losses": next((r["losses"] for r in results if r["losses"][-1] is not None), []),
                   "peak_bytes": [r["peak_bytes"] for r in results]}, sys.stdout)
        print()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
