# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.pipelining makes of the tables that pd-schedule --format=torch writes.

    torch-schedules.py load <CASES
        has PyTorch read tables; a line of CASES is RANKS STAGES MICROBATCHES FORMAT FILE, where FORMAT is
        compute_only or compute_comms.  Prints a line for each that it refuses; the exit status is then 1.
    torch-schedules.py run STAGES MICROBATCHES FORMAT FILE
        trains a small network for one step() with the table, on as many processes of gloo as it has rows,
        and compares the gradients with those of one process.  Exit status 1: they differ by more than a
        millionth of the largest.
    torch-schedules.py all <CASES
        the same for many tables, in less time; a line of CASES is WORD FILE, where WORD is right, if the gradients
        are to be equal, or wrong.  Prints a line for each that does otherwise; the exit status is then 1.
    torch-schedules.py same <CASES
        compares tables with what PyTorch's own schedule makes; a line of CASES is CLASS RANKS STAGES MICROBATCHES
        FILE.  Prints a line for each that differs; the exit status is then 1.
    torch-schedules.py right FOLDER COUNT SEED
        writes COUNT tables that are right: PyTorch's own schedules and orders drawn at random, on stages placed
        at random, half of them with transfers.
    torch-schedules.py shifted FOLDER COUNT SEED
        writes COUNT tables with transfers in which some transfers have changed places at random, so that they
        can be done, cannot, or can if transfers do not block others.
    torch-schedules.py broken FOLDER COUNT SEED
        breaks such tables in one place each: a computation is missing, doubled, before what it needs, or in a
        place where the ranks wait for each other for ever; two forwards of the last stage change places; a wait, a
        transfer or a reduction is missing.  The
        name of a file begins with what was done.  Whether ranks wait for ever is found out here by PyTorch's own
        lowering (computations) or by doing all with transfers that block (transfers)."""
import csv
import datetime
import os
import random
import re
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules

WIDTH, SAMPLES, SECONDS, SECONDS_OF_MANY = 16, 2, 60, 15
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
            # Its simulator knows no pairs: their parts one after the other, as its runtime does them.
            moves = {r: [part for a in row for part in a.sub_actions or (a,)
                         if not str(a.computation_type).endswith(NOT_SIMULATED)]
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


def try_table(name):
    """Runs a table; returns what the first process that failed says, or None."""
    with open(name, newline="") as file:
        rows = [row for row in csv.reader(file)]
    cells = [cell for row in rows for cell in row]
    numbers = re.findall(r"(\d+)(?:F|I|B|W|SEND_F|RECV_F|SEND_B|RECV_B)(\d+)", ",".join(cells))
    count, microbatches = (1 + max(int(n[k]) for n in numbers) for k in (0, 1))
    kind = "compute_comms" if any("SEND" in cell for cell in cells) else "compute_only"
    with tempfile.TemporaryDirectory() as folder:
        def one(rank):
            with open(f"{folder}/said-{rank}", "w") as said:
                os.dup2(said.fileno(), 2)
                work(rank, len(rows), count, microbatches, kind, name, f"{folder}/meet")
        # Forked, since importing PyTorch takes longer than all else.
        processes = [mp.get_context("fork").Process(target=one, args=(r,)) for r in range(len(rows))]
        for process in processes:
            process.start()
        end = time.monotonic() + SECONDS_OF_MANY
        while time.monotonic() < end and any(p.is_alive() for p in processes) and not any(p.exitcode for p in
                                                                                         processes):
            time.sleep(0.01)
        hung = [r for r, p in enumerate(processes) if p.is_alive()]
        failed = [r for r, p in enumerate(processes) if p.exitcode]
        for process in processes:
            process.kill()
            process.join()
        if failed:
            with open(f"{folder}/said-{failed[0]}") as said:
                return (said.read().strip().splitlines() or ["?"])[-1]
        return f"ranks {hung} hang" if hung else None


def try_all():
    torch.set_num_threads(1)
    wrong = 0
    for line in sys.stdin:
        word, name = line.split()
        said = try_table(name)
        if (said is None) != (word == "right"):
            wrong += 1
            print(f"{name}: expected {word}: {said or 'equal gradients'}", flush=True)
    return wrong > 0


def order_of(name, ranks, count, microbatches):
    """Returns the order of one of PyTorch's schedules: rank -> actions."""
    return schedules.get_schedule_class(name)([Stage(s, count, ranks) for s in range(0, count, ranks)], microbatches,
                                              loss_fn=lambda output, target: output.sum()).pipeline_order


def same():
    wrong = 0
    for line in sys.stdin:
        name, ranks, count, microbatches, file = line.split()
        order = order_of(name, int(ranks), int(count), int(microbatches))
        theirs = [[str(a) for a in order[r] if a] for r in sorted(order)]
        with open(file, newline="") as rows:
            ours = [[cell for cell in row if cell] for row in csv.reader(rows)]
        if ours != theirs:
            wrong += 1
            print(f"{file}: not the order of {name}")
    return wrong > 0


def own_schedule(draw, ranks, microbatches):
    """Returns the order of one of PyTorch's schedules, drawn at random: rank -> actions."""
    name, chunks = draw.choice([("Interleaved1F1B", 2), ("Interleaved1F1B", 3), ("LoopedBFS", 2),
                                ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 2), ("DualPipeV", 2)])
    count = ranks * chunks
    microbatches = max(2 * ranks, microbatches // ranks * ranks)
    return order_of(name, ranks, count, microbatches), count, microbatches


def random_order(draw, ranks, microbatches):
    """Returns an order drawn at random among those that can be done: rank -> actions."""
    count = ranks * draw.choice([1, 1, 2])
    where = list(range(ranks)) + [draw.randrange(ranks) for _ in range(count - ranks)]
    draw.shuffle(where)
    split = draw.random() < 0.5
    todo = {(s, k, m) for s in range(count) for k in ("FIW" if split else "FB") for m in range(microbatches)}
    order, done = {r: [] for r in range(ranks)}, set()
    back = "I" if split else "B"
    while todo:
        # The last stage goes through microbatches in their order: PyTorch numbers losses so.
        can = [(s, k, m) for s, k, m in sorted(todo)
               if (k == "F" and (s == 0 or (s - 1, "F", m) in done)
                   and (s < count - 1 or m == 0 or (s, "F", m - 1) in done))
               or (k == back and (s, "F", m) in done and (s == count - 1 or (s + 1, back, m) in done))
               or (k == "W" and (s, "I", m) in done)]
        s, k, m = chosen = draw.choice(can)
        todo.remove(chosen)
        done.add(chosen)
        order[where[s]].append(schedules._Action.from_str(f"{s}{k}{m}"))
    return order, count, microbatches


def lowered(order, count, microbatches):
    made = runtime(len(order), count, microbatches)
    made._prepare_schedule_with_comms({r: list(row) for r, row in order.items()})
    return {r: [a for a in row if "SHARD" not in str(a)] for r, row in made.pipeline_order_with_comms.items()}


def draw_table(draw, comms):
    """Returns a right table as rows of texts."""
    ranks, microbatches = draw.randint(2, 6), draw.randint(1, 12)
    order, count, microbatches = draw.choice([own_schedule, random_order])(draw, ranks, microbatches)
    complete = lowered(order, count, microbatches)      # PyTorch takes it
    rows = [[str(a) if a else "" for a in (complete if comms else order)[r]] for r in sorted(order)]
    return rows, count, microbatches


def write(folder, number, what, rows):
    with open(f"{folder}/{what}-{number}.csv", "w") as out:
        csv.writer(out).writerows(rows)


def right(folder, amount, seed):
    draw = random.Random(int(seed))
    for number in range(int(amount)):
        write(folder, number, "right", draw_table(draw, number % 2)[0])
    return 0


def way(cell, rank_of):
    """Returns the other rank and the direction of a transfer, or None."""
    match = re.match(r"(\d+)(SEND|RECV)_([FB])", cell)
    if not match:
        return None
    step = 1 if (match[2] == "SEND") == (match[3] == "F") else -1
    return rank_of[int(match[1]) + step], match[2]


def shift(draw, row, rank_of):
    """Has a receive stand earlier, or a send later, but not behind its wait, nor past others of its way."""
    i = draw.choice([i for i, cell in enumerate(row) if way(cell, rank_of)])
    cell, here = row[i], way(row[i], rank_of)
    step = 1 if here[1] == "SEND" else -1
    end = i
    while (0 <= end + step < len(row) and way(row[end + step], rank_of) != here
           and row[end + step] != cell.replace("SEND", "WAIT_SEND")):
        end += step
    row.insert(draw.randint(min(i, end), max(i, end)), row.pop(i))


def shifted(folder, amount, seed):
    draw, number = random.Random(int(seed)), 0
    while number < int(amount):
        rows = [list(row) for row in draw_table(draw, True)[0]]
        rank_of = {int(re.match(r"\d+", cell)[0]): r for r, row in enumerate(rows) for cell in row if "(" not in cell}
        for _ in range(draw.randint(1, 4)):
            row = draw.choice(rows)
            if any(way(cell, rank_of) for cell in row):
                shift(draw, row, rank_of)
        write(folder, number, "shifted", rows)
        number += 1
    return 0


def hangs(rows):
    """Tells whether a table with transfers that block both ends cannot be done."""
    todo = [[c for c in row if re.match(r"\d+(SEND|RECV)_", c)] for row in rows]
    other = {}
    for row in todo:
        for cell in row:
            stage, move, kind, microbatch = re.match(r"(\d+)(SEND|RECV)_([FB])(\d+)", cell).groups()
            step = 1 if (move == "SEND") == (kind == "F") else -1
            other[cell] = f"{int(stage) + step}{'RECV' if move == 'SEND' else 'SEND'}_{kind}{microbatch}"
    more = True
    while more:
        more = False
        heads = {row[0] for row in todo if row}
        for row in todo:
            if row and other[row[0]] in heads:
                mine, theirs = row[0], other[row[0]]
                for each in todo:
                    if each and each[0] in (mine, theirs):
                        each.pop(0)
                more = True
                break
    return any(todo)


def refused(rows, count, microbatches):
    """Tells whether PyTorch cannot put transfers into a table without."""
    try:
        lowered({r: [schedules._Action.from_str(c) for c in row] for r, row in enumerate(rows)}, count,
                microbatches)
    except AssertionError as error:
        return "Malformed" in str(error)
    return False


COMPUTES = re.compile(r"^\d+[FIWB]\d+$")


def break_one(draw, rows, count, microbatches, what):
    """Returns the rows with one place broken, or None if this table has no such place."""
    rows = [list(row) for row in rows]
    row = draw.choice(rows)
    places = [i for i, cell in enumerate(row) if COMPUTES.match(cell)]
    if what in ("missing", "doubled"):
        if not places:
            return None
        i = draw.choice(places)
        row[i:i + 1] = [] if what == "missing" else [row[i]] * 2
        return rows
    if what == "swapped":
        pairs = [(i, k) for i in places for k in places if i < k
                 and re.sub("F", "[BI]", row[i], count=1) and re.match(re.sub("F", "[BI]", row[i]) + "$", row[k])
                 and "F" in row[i]]
        pairs += [(i, k) for i in places for k in places if "I" in row[i] and row[k] == row[i].replace("I", "W")]
        if not pairs:
            return None
        i, k = draw.choice(pairs)
        row[i], row[k] = row[k], row[i]
        return rows
    if what == "losses":
        last = max(int(re.match(r"\d+", c).group()) for r in rows for c in r if COMPUTES.match(c))
        for row in rows:
            places = [i for i, c in enumerate(row) if re.match(rf"{last}F\d+$", c)]
            for i, k in zip(places, places[1:]):
                row[i], row[k] = row[k], row[i]
                if valid(rows, count, microbatches) and not refused(rows, count, microbatches):
                    return rows
                row[i], row[k] = row[k], row[i]
        return None
    if what == "deadlock":
        comms = any("SEND" in cell for row in rows for cell in row)
        for _ in range(40):
            tried = [list(r) for r in rows]
            row = draw.choice(tried)
            moves = [i for i, c in enumerate(row) if (re.match(r"\d+(SEND|RECV)_", c) if comms
                                                       else COMPUTES.match(c))]
            if len(moves) < 2:
                continue
            i, k = sorted(draw.sample(moves, 2))
            if comms and any(not re.match(r"\d+(SEND|RECV)_", c) for c in row[i:k + 1]):
                continue                # nothing that computes changes its place
            row.insert(i, row.pop(k))
            if (hangs(tried) if comms else valid(tried, count, microbatches) and
                    refused(tried, count, microbatches)):
                return tried
        return None
    wanted = {"wait": "WAIT_SEND", "transfer": "SEND_|RECV_", "reduction": "REDUCE_GRAD"}[what]
    places = [i for i, cell in enumerate(row) if re.match(rf"\d+({wanted})", cell)]
    if not places:
        return None
    del row[draw.choice(places)]
    return rows


def valid(rows, count, microbatches):
    """Tells whether PyTorch's validator accepts a table."""
    try:
        schedules._validate_schedule({r: [schedules._Action.from_str(c) for c in row] for r, row in
                                      enumerate(rows)}, len(rows), count, microbatches)
    except (AssertionError, IndexError):        # its message can fail, too
        return False
    return True


def broken(folder, amount, seed):
    draw, number = random.Random(int(seed)), 0
    ways = ["missing", "doubled", "swapped", "deadlock", "deadlock", "wait", "transfer", "reduction", "losses"]
    while number < int(amount):
        what = ways[number % len(ways)]
        rows, count, microbatches = draw_table(draw, what in ("wait", "transfer", "reduction")
                                               or (what != "losses" and draw.random() < 0.5))
        rows = break_one(draw, rows, count, microbatches, what)
        if rows:
            write(folder, number, what, rows)
            number += 1
    return 0


if __name__ == "__main__":
    sys.exit({"load": load, "same": same, "run": run, "all": try_all, "right": right, "shifted": shifted,
              "broken": broken}[sys.argv[1]](*sys.argv[2:]))
