#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays plans of random chains by what the manuals say, and compares with pd-replay.

    python3 contrib/replay-judge.py [COUNT [SEED]]      (default: 50 plans, seed 1)

This simulator shares nothing with pd-replay but pd-schedule's lists.  A rank computes its forwards and
backwards in the order of its list, one at a time.  A transfer is ready when what it sends is made and the
buffer that it goes to is free (pd-plan(5): warmup + 2 inboxes, two buffers for gradients), and takes turns at
both ranks' links as pd-replay(1), "Links", says.  PD_BUILD names the build tree.  The last line says how far the
two are apart in the time that all minibatches take; the exit status is 1 if any plan is 2 % apart or more."""
import json
import os
import random
import subprocess
import sys

BIN = os.path.join(os.environ.get("PD_BUILD", "."), "bin")
MINIBATCHES = 60


def run(program, *options, document):
    done = subprocess.run([os.path.join(BIN, program), *options], input=document, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{program} {' '.join(options)}: {done.stderr}")
    return done.stdout


def chain(rng, layers):
    """A profile: layers of a few milliseconds, and tensors that take about as long on the links."""
    return json.dumps({
        "format": "pd-profile", "version": 1, "name": "chain", "batch_size": 8, "dtype": "f32",
        "device": {"kind": "cpu", "name": "none"},
        "layers": [{"name": f"l{i}", "inputs": [f"l{i - 1}"] if i else [],
                    "forward_ns": rng.randrange(500_000, 2_000_000),
                    "backward_ns": rng.randrange(1_000_000, 4_000_000),
                    "activation_bytes": rng.randrange(1_000, 300_000),
                    "parameter_bytes": 1000} for i in range(layers)]})


def plan_of(rng):
    stages = rng.randrange(2, 7)
    sizes = [rng.randrange(1, 4) for _ in range(stages)]
    bandwidth, latency = rng.choice([20, 50, 100]), rng.choice([0, 20, 500])
    schedule = rng.choice([("1f1b", "stash", 1), ("1f1b", "flush", 4), ("gpipe", "flush", 4)])
    return run("pd-plan", "--quiet", "-t", f"{stages}@{bandwidth}MB/s+{latency}us",
               "--stages=" + ",".join(map(str, sizes)), f"--schedule={schedule[0]}",
               f"--weights={schedule[1]}", f"--microbatches={schedule[2]}",
               document=chain(rng, sum(sizes)))


class Replay:
    def __init__(self, plan, lists):
        self.plan = plan
        level = plan["topology"]["levels"][0]
        self.bandwidth, self.latency = level["bandwidth_bytes_per_s"], level["latency_ns"]
        layers = {l["name"]: l for l in plan["profile"]["layers"]}
        self.stages = [[layers[n] for n in s["layers"]] for s in plan["stages"]]
        self.inboxes = [s["warmup"] + 2 for s in plan["stages"]]
        self.slots = [s["warmup"] + 1 for s in plan["stages"]]
        if plan["schedule"] == "gpipe":
            self.slots = [plan["microbatches"]] * len(self.stages)
            self.inboxes = [n + 1 for n in self.slots]
        self.lists = lists
        self.end = {}           # (kind, stage, microbatch) -> when it was over
        self.free = [0] * len(self.stages)      # when a rank may compute again
        self.out = [0] * len(self.stages)       # when its link is free, each way
        self.into = [0] * len(self.stages)

    def over(self, kind, stage, microbatch):
        """When that was over; 0 where it never is, None where it is not yet known."""
        return 0 if microbatch < 0 else self.end.get((kind, stage, microbatch))

    def compute_ready(self, kind, s, b):
        waits = []
        if kind == "forward":
            if s > 0:
                waits.append(self.over("arrived", (s - 1, s), b))
            if s < len(self.stages) - 1:        # what is sent lies in the slot
                waits.append(self.over("left", (s, s + 1), b - self.slots[s]))
        else:
            if s < len(self.stages) - 1:
                waits.append(self.over("arrived", (s + 1, s), b))
            if s > 0:
                waits.append(self.over("left", (s, s - 1), b - 2))
        return None if None in waits else max(waits + [self.free[s]])

    def transfer_ready(self, way, b):
        a, z = way
        if a < z:
            waits = [self.over("forward", a, b), self.over("backward", z, b - self.inboxes[z])]
        else:
            waits = [self.over("backward", a, b), self.over("backward", z, b - 2)]
        return None if None in waits else max(waits)

    def computations(self):
        for s, ops in enumerate(self.lists):
            if ops:
                at = self.compute_ready(ops[0][0], s, ops[0][1])
                if at is not None:
                    yield at, 0, s, None

    def transfers(self):
        for way, b in self.waiting.items():
            ready = self.transfer_ready(way, b)
            if ready is not None:
                yield max(ready, self.out[way[0]], self.into[way[1]]), 1 + ready, way, b

    def compute(self, at, s):
        kind, b = self.lists[s].pop(0)
        took = sum(l[kind + "_ns"] for l in self.stages[s])
        self.free[s] = self.end[kind, s, b] = at + took

    def transfer(self, at, way, b):
        a, z = way
        took = round(self.stages[min(way)][-1]["activation_bytes"] * 1e9 / self.bandwidth)
        self.out[a] = self.into[z] = self.end["left", way, b] = at + took
        self.end["arrived", way, b] = at + took + self.latency
        self.waiting[way] = b + 1

    def time(self):
        last = len(self.stages) - 1
        self.waiting = {way: 0 for s in range(last) for way in ((s, s + 1), (s + 1, s))}
        while any(self.lists):
            at, _, what, b = min([*self.computations(), *self.transfers()], key=lambda e: e[:2])
            if b is None:
                self.compute(at, what)
            else:
                self.transfer(at, what, b)
        return max(self.free)


def lists_of(plan_text, plan):
    lists = [[] for _ in plan["stages"]]
    for line in run("pd-schedule", "-m", str(MINIBATCHES), document=plan_text).splitlines()[1:]:
        op = json.loads(line)
        if op["op"] in ("forward", "backward"):
            lists[op["stage"]].append((op["op"], op["microbatch"]))
    return lists


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    apart = []
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        text = plan_of(rng)
        plan = json.loads(text)
        ours = Replay(plan, lists_of(text, plan)).time()
        theirs = json.loads(run("pd-replay", "-f", "json", "-m", str(MINIBATCHES), document=text))["elapsed_ns"]
        apart.append(abs(theirs / ours - 1))
        if apart[-1] >= 0.02:
            print(f"plan {number}: {plan['schedule']}, {plan['weights']}, {len(plan['stages'])} stages: "
                  f"{ours / 1e6:.3f} ms here, pd-replay {theirs / 1e6:.3f}")
    apart.sort()
    print(f"{count} plans: {100 * apart[count // 2]:.2f} % apart in the median, {100 * apart[-1]:.2f} % at most")
    sys.exit(apart[-1] >= 0.02)


if __name__ == "__main__":
    main()
