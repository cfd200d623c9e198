#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges pd_profile.py and pd_run.py on the networks of networks.py.

    check.py                    profiles them, checks that this changes nothing, and writes NAME.json for each
    check.py NAME GRADIENTS     compares what pd_run.py saved of two ranks with the gradients of one process
"""
import json
import sys

import torch

import networks
import pd_profile


def state(module):
    return [t.clone() for t in (*module.parameters(), *module.buffers())] + [torch.random.get_rng_state()]


def faults(module, document, before, after):
    """Says what is wrong with a profile of the module."""
    layers = document["layers"]
    for trained, key in (True, "parameter_bytes"), (False, "state_bytes"):
        expected = sum(4 * p.numel() for p in module.parameters() if p.requires_grad == trained)
        found = sum(layer.get(key, 0) for layer in layers)
        if found != expected if trained else found < expected:
            yield f"{found} bytes of {key}, expected {expected}"
    if not all(torch.equal(a, b) for a, b in zip(before, after)):
        yield "the module or the random numbers have changed"
    if any(p.grad is not None for p in module.parameters()):
        yield "a parameter has a gradient"
    times = sum(layer["forward_ns"] + layer["backward_ns"] for layer in layers)
    if not 0 < times <= document["step_ns"] * 1.01 + 100 * len(layers):
        yield f"layers take {times} ns, the step {document['step_ns']}"
    used = {name for layer in layers for name in layer["inputs"]}
    idle = [layer["name"] for layer in layers[:-1] if layer["name"] not in used]
    if len(idle) > 1:
        yield "nobody uses " + ", ".join(idle)


def compare(name, files):
    torch.set_num_threads(1)        # As torch.distributed.run gives each rank; another number rounds otherwise.
    torch.manual_seed(0)
    module, args, loss, target = getattr(networks, name)()
    loss(module(*args), target).backward()
    saved = {**torch.load(f"{files}.0"), **torch.load(f"{files}.1")}
    largest = max(p.grad.abs().max() for p in module.parameters())
    wrong = [n for n, p in module.named_parameters()
             if not (saved[n] - p.grad).abs().max() <= 2e-6 * largest]
    print(len(saved), "gradients;", "wrong:" if wrong else "all equal", *wrong)
    return bool(wrong)


def judge():
    for number, make in enumerate(networks.ALL, 1):
        torch.manual_seed(0)
        module, given, *loss = make()
        keywords = given if isinstance(given, dict) else None
        before = state(module)
        document = pd_profile.profile(module, () if keywords else given, keywords, *loss, rounds=2)
        found = list(faults(module, document, before, state(module)))
        with open(make.__name__ + ".json", "w", encoding="utf-8") as out:
            json.dump(document, out)
        print("not ok" if found else "ok", number, "-", make.__name__, len(document["layers"]), "layers", *found)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(compare(*sys.argv[1:]) if len(sys.argv) > 1 else judge())
