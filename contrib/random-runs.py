#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains random networks by random plans with random options, and checks what comes of it.

    python3 contrib/random-runs.py BUILD [FIRST [COUNT [LAUNCHER]]]

BUILD is a build of which "make check TESTS=" has made the programs.  FIRST (1) is the number of the first
case, COUNT (100) how many there are; a number always makes the same case.  A case is wrong if a program
fails, if the memory is not as predicted, if the weights do not have the bits of test/conform/serial, or if
those of a run that was stopped and resumed are not the same.  It is also wrong if a process is left after pd-run
or a worker was killed, or if the weights differ when such a run is resumed.  So it is if a resumed run by another
plan does not have the bits of the serial program, if two runs with another reducer differ, or if the
plan's schedule, its replay or the run's trace is refused.  With a LAUNCHER, such as "mpirun --oversubscribe
-np", which is followed by the number of ranks, a run that it starts must have the same bits, too.  What
programs refuse is counted alone.  For each wrong case it prints the commands that repeat it.  The exit
status is 1 if any was wrong.
"""
import json
import math
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

# What goes with which schedule, and the weights that update only together, so that ranks can agree.
WEIGHTS = {
    "1f1b": ["stash", "vertical-sync", "2bw", "flush", "latest"], "none": ["stash", "flush"],
    "gpipe": ["flush"], "zb-h1": ["flush"], "zb-h2": ["flush"], "interleaved": ["flush"],
    "zb-v": ["flush"], "v-half": ["flush", "2bw"], "v-min": ["flush", "2bw"], "dualpipe-v": ["flush"],
    "nf1b": ["stash", "vertical-sync", "latest"],
}
TOGETHER = ("2bw", "flush")
SECONDS = 120  # after which a program counts as stuck
SECONDS_KILLED = 15  # after which all processes of a run that was killed have ended


class Wrong(Exception):
    pass


class Refused(Exception):
    pass


class Case:
    """A case in a folder of its own, and the commands that it ran so far."""

    def __init__(self, build, number, folder, launcher):
        self.build, self.folder, self.launcher, self.commands = build, folder, launcher, []
        self.draw = random.Random(number)

    def maybe(self, probability, *options):
        return list(options) if self.draw.random() < probability else []

    def run(self, program, *arguments, into=None, may_refuse=False, launcher=()):
        """Runs a program of the build; returns its output, which it also writes into a file."""
        command = [*launcher, os.path.join(self.build, program), *arguments]
        self.commands.append(shlex.join(command) + (f" >{into}" if into else ""))
        try:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as stuck:
            raise Wrong(f"{program} did not end in {SECONDS} s") from stuck
        if may_refuse and done.returncode in (1, 2):
            raise Refused
        if done.returncode != 0:
            last = (done.stderr or done.stdout).strip().split("\n")[-1]
            raise Wrong(f"{program} ended with {done.returncode}: {last}")
        if into:
            with open(os.path.join(self.folder, into), "w", encoding="utf-8") as file:
                file.write(done.stdout)
        return done.stdout


def model_arguments(case):
    """Returns pd-model's arguments for a small network of any family."""
    draw = case.draw
    transformer = [f"--layers={draw.randint(1, 4)}", "--hidden=16", "--heads=4", "--sequence=12",
                   "--vocabulary=50"]
    image = ["--channels=3", "--size=32", "--classes=10"]
    dropout = case.maybe(0.4, "--dropout=0.2")
    return draw.choice([
        ["mlp", f"--layers={draw.randint(1, 6)}", f"--hidden={draw.choice([7, 16, 33])}", *image],
        ["resnet", "--layers=18", *image],
        ["resnext", "--layers=50", "--width=1", "--groups=4", *image],
        ["gpt", *transformer, *dropout, *case.maybe(0.4, "--untied")],
        ["bert", *transformer, *dropout, *case.maybe(0.5, "--norm=post"), *case.maybe(0.3, "--head=masked")],
        ["llama", *transformer, "--kv-heads=2", "--feed-forward=24", *case.maybe(0.3, "--tied"),
         *case.maybe(0.3, "--qk-norm"), *case.maybe(0.3, "--head-dim=6"), *case.maybe(0.3, "--bias=all"),
         *case.maybe(0.3, "--rope-factor=4"), *case.maybe(0.3, "--window=3")],
        ["vit", f"--layers={draw.randint(1, 4)}", "--hidden=16", "--heads=4", "--patch=8", *image, *dropout],
        ["gnmt", f"--layers={draw.randint(2, 4)}", "--hidden=8", "--sequence=7", "--vocabulary=40"],
        ["awd-lm", f"--layers={draw.randint(1, 4)}", "--hidden=12", "--embedding=8", "--sequence=9",
         "--vocabulary=40", *case.maybe(0.4, "--untied")],
        ["s2vt", "--hidden=8", "--features=12", "--sequence=8", "--vocabulary=40", "--embedding=6"],
    ])


def stage_list(case, layers, replicas):
    """Returns --stages with this many replicas each, cut anywhere."""
    cuts = [0, *sorted(case.draw.sample(range(1, layers), len(replicas) - 1)), layers]
    return ",".join(f"{end - begin}x{r}" for begin, end, r in zip(cuts, cuts[1:], replicas))


def plan_arguments(case, layers):
    """Returns a schedule, weights, and pd-plan's arguments for them."""
    draw = case.draw
    schedule = draw.choice(["1f1b"] * 5 + list(WEIGHTS))
    weights = draw.choice(WEIGHTS[schedule])
    arguments = [f"--schedule={schedule}", f"--weights={weights}"]
    replicas = [1] * draw.randint(1, min(4, layers))
    if schedule == "interleaved":
        chunks = draw.randint(1, 3)
        replicas = [1] * min(chunks * draw.randint(1, 3), layers)
        arguments.append(f"--chunks={chunks}")
    elif schedule in ("zb-v", "v-half", "v-min", "dualpipe-v"):
        replicas = [1] * (2 * draw.randint(1, min(3, layers // 2)))
    elif schedule != "nf1b" and draw.random() < 0.75:
        replicas = [r + draw.choice([0, 0, 1, 2]) for r in replicas]
    if draw.random() < 0.85:
        arguments.append("--stages=" + stage_list(case, layers, replicas))
    together = math.lcm(*replicas)
    arguments += ["--topology=" + draw.choice([f"{sum(replicas)}@10Gbit/s", "2@10GB/s,5@1GB/s",
                                               "3@10GB/s+5us,4@1GB/s+30us"])]
    arguments += case.maybe(0.7, f"--microbatches={together * draw.randint(1, 4)}")
    arguments += case.maybe(0.3, "--recompute=" + draw.choice(["all", "auto"]))
    arguments += case.maybe(0.2 if schedule == "1f1b" else 0, "--eager")
    if max(replicas) > 1:
        # Of all reducers dense, the default, alone adds in the order of the serial program.
        arguments += case.maybe(0.5, "--bucket=" + draw.choice(["auto", "1", "100", "1000", "5000"]))
        arguments += case.maybe(0.3, "--gradient-dtype=" + draw.choice(["bf16", "f16"]))
        arguments += case.maybe(0.3, f"--sparsity={draw.choice([0, 0.3, 0.85])}",
                                f"--chunk={draw.choice([8, 64, 100])}",
                                f"--sparsity-warmup={draw.choice([0, 2, 5])}")
    return weights, arguments


def training_arguments(case, weights, dtype):
    """Returns arguments that pd-run and the serial program both take."""
    draw = case.draw
    optimizer = draw.choice(["sgd", "sgd", "adam", "adamw", "lars", "nesterov", "lion"])
    arguments = [f"--optimizer={optimizer}", "--lr=0.002", f"--seed={draw.randint(1, 99)}"]
    if optimizer == "lion":
        arguments.append("--beta2=0.99")  # its default, and the serial program has another
    if optimizer in ("sgd", "lars", "nesterov"):
        arguments += case.maybe(0.6, "--momentum=" + draw.choice(["0", "0.5", "0.9"]))
    arguments += case.maybe(0.4, "--weight-decay=0.01", *case.maybe(0.4, "--decay=matrices"))
    arguments += case.maybe(0.2, "--lr-warmup=3")
    if weights in TOGETHER:
        arguments += case.maybe(0.35, "--clip-grad-norm=0.5")
    if dtype == "f16":
        arguments.append("--loss-scale=" + draw.choice(["dynamic", "128"]))
    if weights == "latest":
        arguments += case.maybe(0.5, draw.choice(["--lr-reschedule=9", "--discrepancy=0.5"]))
    return arguments


def check_resumed(case, train, count, replicas_together):
    """Checks that a run which is stopped between two updates and resumed ends with the same files."""
    stop = case.draw.randint(1, count - 1) // replicas_together * replicas_together
    if stop == 0:
        return
    case.run("bin/pd-run", *train, "--checkpoint=again", f"--minibatches={stop}", "plan.json")
    case.run("bin/pd-run", *train, "--checkpoint=again", f"--minibatches={count}", "--resume", "plan.json")
    check_same(case, "whole", "again", count, f"resumed after {stop} of {count} minibatches")


def check_same(case, one, other, count, what):
    """Checks that two runs ended with the same files."""
    for name in os.listdir(os.path.join(case.folder, one, f"step-{count:012d}")):
        if read(case, f"{one}/step-{count:012d}/{name}") != read(case, f"{other}/step-{count:012d}/{name}"):
            raise Wrong(f"{what}: {name} differs")


def processes(folder):
    """Returns the processes whose working folder this is."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == folder:
                found.append(int(name))
        except OSError:
            pass
    return found


def check_killed(case, train, replicas_together):
    """Checks that a run which is killed at some moment ends, and goes on with the same bits when resumed."""
    draw = case.draw
    every = replicas_together * draw.randint(1, 3)
    command = [os.path.join(case.build, "bin/pd-run"), *train, "--checkpoint=killed",
               f"--checkpoint-every={every}", "--minibatches=1000000", "plan.json"]
    who, how = draw.choice([("pd-run", signal.SIGKILL), ("pd-run", signal.SIGTERM), ("pd-run", signal.SIGINT),
                            ("a worker", signal.SIGKILL)])
    case.commands.append(f"{shlex.join(command)} # {who} gets {how.name}")
    with subprocess.Popen(command, cwd=case.folder, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as run:
        time.sleep(draw.uniform(0.02, 0.8))
        found = [run.pid] if who == "pd-run" else [p for p in processes(case.folder) if p != run.pid]
        if found:
            os.kill(draw.choice(found), how)
        else:
            run.kill()
        since = time.monotonic()
        while run.poll() is None or processes(case.folder):
            time.sleep(0.01)
            if time.monotonic() - since > SECONDS_KILLED:
                run.kill()
                raise Wrong(f"{processes(case.folder)} are there {SECONDS_KILLED} s after it was killed")
    steps = [int(name[5:]) for name in os.listdir(os.path.join(case.folder, "killed"))
             if name.startswith("step-")] if os.path.isdir(os.path.join(case.folder, "killed")) else []
    if not steps:
        return
    count = max(steps) + replicas_together * draw.randint(1, 4)
    for name, resume in (("killed", ["--resume"]), ("unkilled", [])):
        case.run("bin/pd-run", *train, f"--checkpoint={name}", f"--minibatches={count}", *resume, "plan.json")
    check_same(case, "unkilled", "killed", count, f"resumed after {max(steps)} of {count} minibatches")


def check_other_plan(case, arguments, common, count):
    """Checks a run that another plan goes on with, against the serial program."""
    draw = case.draw
    layers = len(json.loads(read(case, "profile.json"))["layers"])
    microbatches = json.loads(read(case, "plan.json"))["microbatches"]
    replicas = [draw.choice([1, 1, 2]) for _ in range(draw.randint(1, min(3, layers)))]
    if microbatches % math.lcm(*replicas):
        replicas = [1] * len(replicas)
    kept = [option for option in arguments
            if option.startswith(("--schedule=nf1b", "--weights", "--agree", "--recompute"))]
    other = case.run("bin/pd-plan", *kept, "--stages=" + stage_list(case, layers, replicas),
                     f"--topology={sum(replicas)}@1GB/s", f"--microbatches={microbatches}", "profile.json",
                     into="other.json", may_refuse=True)
    if json.loads(other)["microbatches"] != microbatches:
        return
    stop = draw.randint(1, count - 1) // microbatches * microbatches
    if stop == 0:
        return
    train = ["--device=cpu", "--threads=1", "--synthetic", "--no-evaluate", *common]
    case.run("bin/pd-run", *train, "--checkpoint=moved", f"--minibatches={stop}", "plan.json")
    case.run("bin/pd-run", *train, "--checkpoint=moved", f"--minibatches={count}", "--resume", "other.json")
    case.run("test/conform/serial", *common, f"--minibatches={count}", f"--switch={stop}", "--to=other.json",
             "--output=moved-serial", "plan.json")
    case.run("test/conform/same-tensors", "moved-serial", f"moved/step-{count:012d}")


def check_reducer(case, arguments, train, count):
    """Checks that two runs with a reducer that adds in an order of its own have the same bits."""
    reducer = case.draw.choice(["ring", "hierarchical", "recursive-doubling"])
    case.run("bin/pd-plan", *arguments, f"--all-reduce={reducer}", "profile.json", into="reduced.json",
             may_refuse=True)
    for name in ("first", "second"):
        ends = case.run("bin/pd-run", *train, f"--checkpoint={name}", f"--minibatches={count}", "reduced.json",
                        may_refuse=True)
        if json.loads(ends.strip().split("\n")[-1])["memory"] != "as predicted":
            raise Wrong(f"with {reducer} the memory is not as predicted")
    check_same(case, "first", "second", count, f"two runs with {reducer}")


def check_documents(case, count):
    """Checks that the schedule, its replay and the trace of a run are documents that programs take."""
    case.run("bin/pd-schedule", f"--minibatches={count}", "plan.json", into="schedule.jsonl")
    case.run("bin/pd-schedule", "--check", "schedule.jsonl")
    for document in ("plan.json", "schedule.jsonl", "trace.jsonl"):
        output = case.draw.choice(["report", "json", "csv", "text", "svg", "chrome", "trace"])
        case.run("bin/pd-replay", f"--format={output}", document)
    case.run("bin/pd-replay", "--compare=trace.jsonl", "plan.json")


def read(case, name):
    with open(os.path.join(case.folder, name), "rb") as file:
        return file.read()


def check(case):
    draw = case.draw
    model = json.loads(case.run("bin/pd-model", *model_arguments(case), into="model.json"))
    dtype = draw.choice(["f32", "f32", "bf16", "f16"])
    case.run("bin/pd-profile", "--device=cpu", f"--dtype={dtype}", "--iterations=1", "--no-link", "--threads=1",
             f"--batch-size={draw.randint(1, 4)}", "model.json", into="profile.json", may_refuse=True)
    weights, arguments = plan_arguments(case, len(model["layers"]))
    common = training_arguments(case, weights, dtype)
    if any(option.startswith(("--clip", "--loss-scale")) for option in common):
        arguments.append("--agree")
    plan = json.loads(case.run("bin/pd-plan", *arguments, "profile.json", into="plan.json", may_refuse=True))
    count = draw.randint(3, 13)
    train = ["--device=cpu", "--threads=1", "--synthetic", "--no-evaluate", *common]
    ends = case.run("bin/pd-run", *train, "--checkpoint=whole", f"--minibatches={count}",
                    "--trace=trace.jsonl", "plan.json", may_refuse=True)
    if json.loads(ends.strip().split("\n")[-1])["memory"] != "as predicted":
        raise Wrong("the memory is not as predicted")
    case.run("test/conform/serial", *common, f"--minibatches={count}", "--output=serial", "plan.json")
    case.run("test/conform/same-tensors", "serial", f"whole/step-{count:012d}")
    together = math.lcm(*(len(stage["ranks"]) for stage in plan["stages"])) if plan["microbatches"] == 1 else 1
    # Backward of latest reads the newest weights, which those of a run that was stopped are not (pd-run(1)).
    if weights != "latest":
        check_resumed(case, train, count, together)
    check_documents(case, count)
    if case.launcher:
        ranks = len({rank for stage in plan["stages"] for rank in stage["ranks"]})
        case.run("bin/pd-run", *train, "--checkpoint=launched", f"--minibatches={count}", "plan.json",
                 launcher=[*case.launcher, str(ranks)])
        check_same(case, "whole", "launched", count, "started by the launcher")
    try:
        if any(len(stage["ranks"]) > 1 for stage in plan["stages"]):
            check_reducer(case, arguments, train, count)
        # The serial program does not go over to another plan with sums that are sparse.  With
        # vertical-sync and latest, what a stage goes on with also depends on the other stages.
        if "sparse" not in plan and weights not in ("vertical-sync", "latest"):
            check_other_plan(case, arguments, common, count)
    except Refused:
        pass
    if weights != "latest":
        check_killed(case, train, together)


def main():
    build = os.path.abspath(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    launcher = shlex.split(sys.argv[4]) if len(sys.argv) > 4 else []
    counts = {"right": 0, "refused": 0, "wrong": 0}
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(build, number, folder, launcher)
            try:
                check(case)
                counts["right"] += 1
            except Refused:
                counts["refused"] += 1
            except Wrong as why:
                counts["wrong"] += 1
                print(f"case {number}: {why}", *case.commands, sep="\n    ", flush=True)
    print(", ".join(f"{value} {key}" for key, value in counts.items()))
    sys.exit(counts["wrong"] > 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
