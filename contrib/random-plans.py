#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans random profiles with random options, and checks what comes of it.

    python3 contrib/random-plans.py BUILD [FIRST [COUNT]]

BUILD is a build of the programs, best one with sanitizers.  FIRST (1) is the number of the first case, COUNT
(100) how many there are; a number always makes the same case.  A case is wrong if a program fails, if the
plan's schedule is refused, if its period is not that of pd-replay within 1 %, if the plan that is said to be
closest is not found with exactly so many bytes, if none is found with those of the plan without a limit
(ONLY=memory checks these two alone), or if --explain or a refusal is not what a user can read.
It is also wrong if a document that pd-replay writes cannot be read, if its figures contradict each other, if the
trace of a replay differs from its plan, or if the answer to a question ("what if") is not what a plan does that
was edited in that way.  For each wrong case it prints the command.  The exit status is 1 if any was wrong.
"""
import csv
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import xml.dom.minidom

WEIGHTS = {
    None: ["stash", "vertical-sync", "2bw", "flush", "latest", "auto"],
    "1f1b": ["stash", "vertical-sync", "2bw", "flush", "latest", "auto"], "none": ["stash", "flush"],
    "gpipe": ["flush"], "zb-h1": ["flush"], "zb-h2": ["flush"], "interleaved": ["flush"],
    "zb-v": ["flush"], "v-half": ["flush", "2bw"], "v-min": ["flush", "2bw"], "dualpipe-v": ["flush"],
    "nf1b": ["stash", "vertical-sync", "latest"],
}
TOPOLOGIES = ["1@1GB/s", "2@1GB/s", "3@10GB/s", "4@1GB/s", "2@10GB/s,2@1GB/s", "4@12GB/s+3us,2@1GB/s+20us",
              "6@100MB/s", "2@10GB/s,2@1GB/s,2@100MB/s", "3@1GB/s,3@200MB/s"]
SECONDS = 300  # after which a program counts as stuck


class Wrong(Exception):
    pass


def profile(draw):
    """Returns a profile of a network with some ways around layers."""
    layers = []
    for k in range(draw.randint(2, 40)):
        inputs = [f"l{k - 1}"] if k else []
        if k > 2 and draw.random() < 0.25:
            inputs.append(f"l{draw.randint(0, k - 2)}")
        layer = {
            "name": f"l{k}", "inputs": inputs,
            "forward_ns": int(draw.lognormvariate(0, 1) * 10 ** draw.choice([3, 5, 6])),
            "backward_ns": int(draw.lognormvariate(0, 1) * 10 ** draw.choice([3, 5, 6])),
            "activation_bytes": draw.choice([0, 64, 4096, 10 ** 6, 5 * 10 ** 6]),
            "parameter_bytes": draw.choice([0, 4, 4096, 4 * 10 ** 6, 4 * 10 ** 7]),
        }
        for key, probability, values in (("stash_bytes", 0.5, [0, 64, 10 ** 6, 2 * 10 ** 7]),
                                         ("workspace_bytes", 0.5, [0, 64, 10 ** 6]),
                                         ("update_ns", 0.3, [0, 10 ** 4, 10 ** 6])):
            if draw.random() < probability:
                layer[key] = draw.choice(values)
        layers.append(layer)
    return {"format": "pd-profile", "version": 1, "name": "random", "batch_size": draw.choice([1, 4, 64]),
            "dtype": draw.choice(["f32", "bf16", "f16"]), "device": {"kind": "cpu", "name": "none"},
            "layers": layers}


def options(draw):
    """Returns pd-plan's options, without --memory."""
    def maybe(probability, option, choices):
        return [f"--{option}={draw.choice(choices)}"] if draw.random() < probability else []

    schedule = draw.choice([None, None, *WEIGHTS])
    given = [f"--topology={draw.choice(TOPOLOGIES)}"]
    if schedule:
        given.append(f"--schedule={schedule}")
    if schedule == "interleaved":
        given += maybe(0.6, "chunks", [1, 2, 3])
        given += maybe(0.3, "round", [2, 5, 8])
    given += maybe(0.6 if schedule is None else 1, "weights", WEIGHTS[schedule])
    given += maybe(0.4, "microbatches", [1, 2, 4, 5, 7, 8, 12]) or maybe(0.3, "batch", [64, 128, 256])
    given += maybe(0.3, "recompute", ["all", "auto", "none"])
    given += maybe(0.3, "all-reduce", ["ring", "auto", "hierarchical", "recursive-doubling", "dense"])
    given += maybe(0.25, "bucket", ["auto", 1000, 1000000])
    given += maybe(0.2, "gradient-dtype", ["f16", "bf16"])
    given += maybe(0.15, "sparsity", [0.5, 0.85])
    for flag in ("--agree", "--eager", "--straight"):
        given += [flag] if draw.random() < 0.1 else []
    return given


def run(build, folder, program, *arguments):
    try:
        return subprocess.run([os.path.join(build, "bin", program), *arguments], cwd=folder,
                              capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as stuck:
        raise Wrong(f"{program} did not end in {SECONDS} s") from stuck


def refusal(done):
    """Returns the sentence of a program that refuses something."""
    lines = done.stderr.strip().split("\n")
    if done.returncode not in (1, 2) or len(lines) != 1 or not lines[0] or done.stdout:
        raise Wrong(f"it ended with {done.returncode}, and says: {done.stderr[-300:]}")
    return lines[0]


def replay(build, folder, *arguments):
    done = run(build, folder, "pd-replay", *arguments)
    if done.returncode or done.stderr:
        raise Wrong(f"pd-replay {shlex.join(arguments)} ends with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def check_plan(build, folder, given, text):
    with open(os.path.join(folder, "plan.json"), "w", encoding="utf-8") as file:
        file.write(text)
    schedule = run(build, folder, "pd-schedule", "--minibatches=7", "plan.json")
    with open(os.path.join(folder, "schedule.jsonl"), "w", encoding="utf-8") as file:
        file.write(schedule.stdout)
    checked = run(build, folder, "pd-schedule", "--check", "schedule.jsonl")
    if schedule.returncode or checked.returncode:
        raise Wrong("its schedule is wrong: " + (schedule.stderr + checked.stderr)[-300:])
    predicted = json.loads(text)["predicted"]
    period = json.loads(replay(build, folder, "--format=json", "plan.json"))["period_ns"]
    if period and predicted["period_from"] == "replay" and abs(period / predicted["period_ns"] - 1) > 0.01:
        raise Wrong(f"it is replayed in {period} ns, not {predicted['period_ns']}")
    if run(build, folder, "pd-plan", *given, "--explain", "profile.json").returncode:
        raise Wrong("--explain fails")


def check_figures(report):
    """Checks that the parts of a report add up."""
    for rank in report["ranks"]:
        parts = [rank[key] for key in rank if key == "busy_ns" or key.startswith("wait_")]
        if abs(sum(parts) - report["window_ns"]) > len(parts):
            raise Wrong(f"of {report['window_ns']} ns rank {rank['rank']} spends {parts}")
        if rank["overlapped_ns"] > rank["transfer_ns"] + 1:
            raise Wrong(f"rank {rank['rank']} computes for longer than its transfers take")
    busy = sum(rank["busy_ns"] for rank in report["ranks"]) / len(report["ranks"])
    if report["window_ns"] and abs(100 - 100 * busy / report["window_ns"] - report["bubble_percent"]) > 0.1:
        raise Wrong(f"the bubble is not {report['bubble_percent']} %")


def check_replays(build, folder):
    """Checks what pd-replay says of a plan, in every format."""
    report = json.loads(replay(build, folder, "--format=json", "plan.json"))
    check_figures(report)
    rows = list(csv.DictReader(io.StringIO(replay(build, folder, "--format=csv", "plan.json"))))
    periods = [row["value"] for row in rows if row["key"] == "period_ns"]
    if len(periods) != 1 or abs(float(periods[0] or 0) - (report["period_ns"] or 0)) > 1e-3:
        raise Wrong(f"as CSV the period is {periods}, and as JSON {report['period_ns']}")
    xml.dom.minidom.parseString(replay(build, folder, "--format=svg", "--minibatches=5", "plan.json"))
    json.loads(replay(build, folder, "--format=chrome", "--minibatches=5", "plan.json"))
    if not replay(build, folder, "--format=text", "--minibatches=5", "plan.json"):
        raise Wrong("its timeline is empty")
    replay(build, folder, "plan.json")
    with open(os.path.join(folder, "trace.jsonl"), "w", encoding="utf-8") as file:
        file.write(replay(build, folder, "--format=trace", "plan.json"))
    again = json.loads(replay(build, folder, "--format=json", "trace.jsonl"))
    if again["period_ns"] != report["period_ns"]:
        raise Wrong(f"its trace has a period of {again['period_ns']} ns, not {report['period_ns']}")
    replay(build, folder, "--compare=plan.json", "trace.jsonl")
    replay(build, folder, "--compare=trace.jsonl", "plan.json")


def check_what_if(build, folder, draw):
    """Checks that a question is answered with what an edited plan does."""
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        plan = json.load(file)
    levels = [dict(level, bandwidth_bytes_per_s=draw.choice([10 ** 8, 10 ** 9, 10 ** 10]),
                   latency_ns=draw.choice([0, 5000])) for level in plan["topology"]["levels"]]
    links = ",".join(f"{level['count']}@{level['bandwidth_bytes_per_s']}B/s+{level['latency_ns']}ns"
                     for level in levels)
    reducer, dtype = draw.choice(["dense", "ring", "hierarchical"]), draw.choice(["f32", "bf16", "f16"])
    bucket_bytes = draw.choice([1000, 10 ** 6])
    question, edits = draw.choice([
        (f"--topology={links}", {"topology": dict(plan["topology"], levels=levels)}),
        (f"--all-reduce={reducer}", {"reducer": reducer}),
        (f"--gradient-dtype={dtype}", {"gradient_dtype": dtype}),
        (f"--bucket={bucket_bytes}", {"bucket_bytes": bucket_bytes})])
    with open(os.path.join(folder, "edited.json"), "w", encoding="utf-8") as file:
        json.dump(dict(plan, **edits), file)
    edited = run(build, folder, "pd-replay", "--format=json", "edited.json")
    if edited.returncode:
        refusal(edited)
        refusal(run(build, folder, "pd-replay", "--format=json", question, "plan.json"))
        return
    asked = json.loads(replay(build, folder, "--format=json", question, "plan.json"))["period_ns"]
    period = json.loads(edited.stdout)["period_ns"]
    if asked != period:
        raise Wrong(f"pd-replay {question} says {asked} ns, where a plan that asks for it takes {period}")


def check_closest(build, folder, given):
    """Checks that nothing fits into a byte, and that what is said to be closest fits as soon as it can."""
    sentence = refusal(run(build, folder, "pd-plan", *given, "--memory=1B", "profile.json"))
    need = re.search(r"needs .*?\(?([0-9]+) bytes\)? on stage", sentence)
    if not need:
        raise Wrong(f"with one byte it says: {sentence}")
    if run(build, folder, "pd-plan", *given, f"--memory={need[1]}B", "profile.json").returncode:
        raise Wrong(f"nothing is found for {need[1]} bytes, which the closest needs")


def check_own_memory(build, folder, given, text):
    """Checks that a plan is found where there is as much memory as the one without a limit needs."""
    need = json.loads(text)["predicted"]["memory_bytes"]
    again = run(build, folder, "pd-plan", *given, f"--memory={need}B", "profile.json")
    if again.returncode:
        raise Wrong(f"without a limit it needs {need} bytes, and with so many it says: {again.stderr[-300:]}")
    if json.loads(again.stdout)["predicted"]["memory_bytes"] > need:
        raise Wrong(f"for {need} bytes it makes a plan that needs more")


def check(build, folder, given, draw):
    """Returns whether pd-plan makes a plan with these options."""
    done = run(build, folder, "pd-plan", *given, "profile.json")
    if done.returncode:
        refusal(done)
        return False
    check_own_memory(build, folder, given, done.stdout)
    if os.environ.get("ONLY") == "memory":
        check_closest(build, folder, given)
        return True
    check_plan(build, folder, given, done.stdout)
    check_replays(build, folder)
    check_what_if(build, folder, draw)
    check_closest(build, folder, given)
    return True


def main():
    build = os.path.abspath(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    counts = {"right": 0, "refused": 0, "wrong": 0}
    for number in range(first, first + count):
        draw = random.Random(number)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "profile.json"), "w", encoding="utf-8") as file:
                json.dump(profile(draw), file)
            given = options(draw)
            try:
                counts["right" if check(build, folder, given, draw) else "refused"] += 1
            except Wrong as why:
                counts["wrong"] += 1
                print(f"case {number}: {why}\n    pd-plan {shlex.join(given)}", flush=True)
    print(", ".join(f"{value} {key}" for key, value in counts.items()))
    sys.exit(counts["wrong"] > 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
