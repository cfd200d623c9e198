# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.pipelining makes of the tables that pd-schedule --format=torch writes.

    torch-schedules.py load <CASES
        has PyTorch read tables; a line of CASES is RANKS STAGES MICROBATCHES FORMAT FILE, where FORMAT is
        compute_only or compute_comms.  Prints a line for each that it refuses; the exit status is then 1.
    torch-schedules.py run STAGES MICROBATCHES FORMAT FILE
        trains a small network for one step() with the table, on as many processes of gloo as it has rows,
        and compares the gradients with those of one process.  Exit status 1: they differ by more than a
        millionth of the largest.
    torch-schedules.py generate RANKS MICROBATCHES SCHEDULE CHUNKS COMMS
        writes the table that PyTorch's own SCHEDULE (1F1B, GPipe, Interleaved1F1B, ...) would dump, with
        transfers if COMMS is yes."""
import csv
import datetime
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules

WIDTH, SAMPLES, SECONDS = 16, 2, 60
NOT_SIMULATED = ("SHARD", "REDUCE_GRAD")


class Stage:
    """What a schedule asks of a stage before it runs."""
    has_backward = True
    is_first = is_last = False
    submod = None

    def __init__(self, index, count, ranks):
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, count, ranks, 0
        self.group = None
        self.stage_index_to_group_rank = {s: s % ranks for s in range(count)}


def runtime(ranks, count, microbatches):
    """Returns a runtime that can load tables, without processes."""
    made = schedules._PipelineScheduleRuntime([Stage(0, count, ranks)], microbatches,
                                              loss_fn=lambda output, target: output.sum())
    made.pp_group_size, made._num_stages = ranks, count
    return made


def load():
    wrong = 0
    for line in sys.stdin:
        ranks, count, microbatches, kind, name = line.split()
        try:
            made = runtime(int(ranks), int(count), int(microbatches))
            made._load_csv(name, format=kind)
            moves = {r: [a for a in row if not str(a.computation_type).endswith(NOT_SIMULATED)]
                     for r, row in made.pipeline_order_with_comms.items()}
            moves = {r: [a for a in row if "WAIT" not in str(a)] for r, row in moves.items()}
            schedules._simulate_comms_compute(moves, lambda s: made.stage_index_to_group_rank[s], int(count))
        except Exception as error:  # whatever PyTorch has against it
            wrong += 1
            print(f"{name}, {kind}: {type(error).__name__}: {str(error).splitlines()[0]}")
    return wrong > 0


def layers(count):
    torch.manual_seed(1)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(count)]


def batch(microbatches):
    torch.manual_seed(2)
    return torch.randn(2, microbatches * SAMPLES, WIDTH)


def single(count, microbatches):
    """Returns the gradients of one process: the mean over microbatches of the losses' gradients."""
    net = torch.nn.Sequential(*layers(count))
    inputs, target = batch(microbatches)
    torch.nn.functional.mse_loss(net(inputs), target).backward()
    return [p.grad for p in net.parameters()]


def work(rank, ranks, count, microbatches, kind, name, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=SECONDS))
    with open(name, newline="") as file:
        rows = [[schedules._Action.from_str(cell) for cell in row] for row in csv.reader(file)]
    mine = sorted({a.stage_index for action in rows[rank] if action
                   for a in (action.sub_actions or (action,))})
    net = layers(count)
    stages = [pipelining.PipelineStage(net[s], s, count, torch.device("cpu")) for s in mine]
    made = schedules._PipelineScheduleRuntime(stages, microbatches, loss_fn=torch.nn.functional.mse_loss)
    made._load_csv(name, format=kind)
    inputs, target = batch(microbatches)
    arguments = (inputs,) if 0 in mine else ()
    keywords = {"target": target, "losses": []} if count - 1 in mine else {}
    made.step(*arguments, **keywords)
    expected = single(count, microbatches)
    largest = max(g.abs().max() for g in expected)
    for s in mine:
        for parameter, gradient in zip(net[s].parameters(), expected[2 * s:2 * s + 2]):
            error = ((parameter.grad - gradient).abs().max() / largest).item()
            if not error < 1e-6:
                raise SystemExit(f"rank {rank}, stage {s}: off by {error:.1e} of the largest gradient")
    dist.destroy_process_group()


def run(count, microbatches, kind, name):
    with open(name, newline="") as file:
        ranks = sum(1 for _ in csv.reader(file))
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (ranks, int(count), int(microbatches), kind, name, f"{folder}/meet"), nprocs=ranks)
    return 0


def generate(ranks, microbatches, name, chunks, comms):
    ranks, microbatches, chunks = int(ranks), int(microbatches), int(chunks)
    cls, count = schedules.get_schedule_class(name), ranks * chunks
    if issubclass(cls, schedules.PipelineScheduleSingle):
        made = cls(Stage(0, count, ranks), microbatches)
        order = made._get_pipeline_order()
        order = {r: [a for a in order[r] if a is None or a.is_compute_op] for r in order}
    else:
        stages = [Stage(s, count, ranks) for s in range(0, count, ranks)]
        order = cls(stages, microbatches, loss_fn=lambda output, target: output.sum()).pipeline_order
    if comms == "yes":
        made = runtime(ranks, count, microbatches)
        made._prepare_schedule_with_comms(order)
        order = made.pipeline_order_with_comms
        order = {r: [a for a in order[r] if "SHARD" not in str(a.computation_type)] for r in order}
    csv.writer(sys.stdout).writerows([["" if a is None else str(a) for a in order[r]] for r in sorted(order)])
    return 0


if __name__ == "__main__":
    sys.exit({"load": load, "run": run, "generate": generate}[sys.argv[1]](*sys.argv[2:]))
