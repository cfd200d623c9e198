#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Profiles a network of PyTorch where it is: any nn.Module and a batch become a pd-profile(5) document.

    import pd_profile
    pd_profile.write("net.json", module, (images,), loss=lambda out: F.cross_entropy(out, labels))

or, where FUNCTION of FILE.py returns the module, its arguments and perhaps the loss,

    python3 pd_profile.py FILE.py:FUNCTION >net.json

Then `pd-plan --gpus=16 net.json` splits it.  A layer is a module without modules of its own, one of the
blocks that are asked for, a segment of torch.utils.checkpoint, or a function between modules.  Compiled modules
are profiled as they run uncompiled, and parameters that are frozen count as such.  Each runs alone, several times, on copies of what
it gets; its times are then its share of the times of whole steps, as in pd-profile(1).  Parameters,
running statistics and random numbers are left as they were.  Nothing but PyTorch is needed.
"""
import argparse
import contextlib
import functools
import importlib.util
import inspect
import json
import os
import re
import statistics
import sys
import tempfile
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "6")      # the profiler would say when it begins

import torch
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def tensors_in(tree):
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def place(tensor):
    """What tensors that share memory have in common."""
    return tensor.untyped_storage().data_ptr()


def size(tensor):
    return tensor.numel() * tensor.element_size()


class Clock:
    """Times what a device does: a GPU by its events, a processor by its clock."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"

    def now(self):
        if not self.cuda:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, marks):
        """Returns the nanoseconds between each mark and the next."""
        if not self.cuda:
            return [b - a for a, b in zip(marks, marks[1:])]
        marks[-1].synchronize()
        return [round(a.elapsed_time(b) * 1e6) for a, b in zip(marks, marks[1:])]


class Memory:
    """Sees what a device's allocator hands out while something runs, from mark to mark: a GPU's own figures, or
    what torch.profiler sees of a processor's."""

    def __init__(self, device):
        self.cuda, self.marks = device.type == "cuda", []

    def __enter__(self):
        if not self.cuda:
            self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                                  profile_memory=True).__enter__()
        self.mark()
        return self

    def mark(self):
        if self.cuda:
            self.marks.append((torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()))
            torch.cuda.reset_peak_memory_stats()
        else:
            with torch.profiler.record_function("pd_profile: mark"):
                pass

    def __exit__(self, *error):
        self.mark()
        if not self.cuda:
            self.profile.__exit__(*error)

    def spans(self):
        """Returns, of each span between two marks, the most bytes in it and those at its end, over those at the
        first mark."""
        if not self.cuda:
            self.marks, now, most = [], 0, 0
            for event in sorted(self.profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
                if event.name() == "[memory]" and event.device_type() == torch.profiler.DeviceType.CPU:
                    now += event.nbytes()
                    most = max(most, now)
                elif event.name() == "pd_profile: mark":
                    self.marks.append((most, now))
                    most = now
        first = self.marks[0][1]
        return [(most - first, now - first) for most, now in self.marks[1:]]


@contextlib.contextmanager
def undisturbed(module):
    """Puts back what forward changes besides its outputs."""
    kept = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        yield
    with torch.no_grad():
        for buffer, value in kept:
            buffer.copy_(value)


WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module")       # of torch.compile, and of checkpoint_wrapper


def scope_names(module):
    """Returns the name of each module in a network, without what wrappers add: module -> name."""
    return {part: ".".join(word for word in name.split(".") if word not in WRAPPERS)
            for name, part in module.named_modules()}


@contextlib.contextmanager
def uncompiled(module):
    """Has what is compiled run as it is written; yields the module that torch.compile was given."""
    wrapped = torch._dynamo.eval_frame.OptimizedModule if "torch._dynamo" in sys.modules else ()
    given, restored = module, []
    while isinstance(module, wrapped):
        module = module._orig_mod
    for parent in list(module.modules()):
        if isinstance(parent, wrapped):
            continue
        if getattr(parent, "_compiled_call_impl", None):        # of module.compile()
            restored.append((parent.__dict__, "_compiled_call_impl", parent._compiled_call_impl))
        restored += [(parent._modules, name, child) for name, child in parent._modules.items()
                     if isinstance(child, wrapped)]
    for where, name, value in restored:
        while isinstance(value, wrapped):
            value = value._orig_mod
        where[name] = value if isinstance(value, torch.nn.Module) else None
    if restored or module is not given:
        print("pd_profile: what is compiled is profiled as it runs uncompiled", file=sys.stderr)
    stance = getattr(torch.compiler, "set_stance", None)        # for functions that are compiled
    try:
        with stance("force_eager") if stance else contextlib.nullcontext():
            yield module
    finally:
        for where, name, value in restored:
            where[name] = value


@contextlib.contextmanager
def checkpoints(call):
    """Has call(function, args, kwargs, run, options) be called for each segment of torch.utils.checkpoint, where
    run(function, args, kwargs) does it.  The kind that autograd.grad cannot follow is replaced by the other."""
    original = torch.utils.checkpoint._checkpoint_impl

    def segment(function, args, kwargs, **options):
        options["use_reentrant"] = False
        return call(function, args, kwargs, lambda *given: original(*given, **options), options)

    torch.utils.checkpoint._checkpoint_impl = segment
    try:
        yield
    finally:
        torch.utils.checkpoint._checkpoint_impl = original


class Uses(TorchFunctionMode):
    """Sees which of some tensors functions are given: those whose places are in one of the tables."""

    def __init__(self, *tables):
        super().__init__()
        self.tables, self.found = tables, {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        for t in tensors_in((args, kwargs)):
            if any(place(t) in table for table in self.tables):
                self.found.setdefault(place(t), t)
        return func(*args, **(kwargs or {}))


def copied(tree):
    """Returns a copy of arguments, and the copies' leaves to which gradients flow."""
    leaves = []

    def copy(leaf):
        if not isinstance(leaf, torch.Tensor) or isinstance(leaf, torch.nn.Parameter):
            return leaf
        if not leaf.requires_grad:
            return leaf.detach().clone()
        leaves.append(leaf.detach().clone().requires_grad_())
        return leaves[-1].clone()       # what works in place may not be given a leaf

    return tree_map(copy, tree), leaves


class Layer:
    def __init__(self, name, inputs, parameters):
        self.name, self.inputs, self.parameters = name, inputs, parameters
        self.shares, self.splits = None, True
        self.activation = self.stash = self.state = self.workspace = 0
        self.times = {}
        self.spread = 0


class Recorder(TorchFunctionMode):
    """Runs a network once, and times each layer where it comes by."""

    def __init__(self, module, inputs, blocks, rounds, clock, device):
        super().__init__()
        self.module, self.rounds, self.clock, self.device = module, rounds, clock, device
        self.layers, self.named, self.names, self.alive = [], {}, {}, []
        self.origin = {place(t): [name] for name, t in inputs}  # names of what made a tensor
        self.input_places = set(self.origin)
        self.maker = {}                 # place of a tensor -> the layer that it is the output of
        self.stashed = set()
        self.active = set()             # places of what layers with parameters made, frozen or not
        self.parameters = {place(p): p for p in module.parameters()}
        self.owner = {}                 # place of a parameter -> the layer that has it
        self.current = None             # the layer that runs
        self.scopes = []
        self.units = self.choose(blocks)

    def choose(self, blocks):
        units, names = {}, scope_names(self.module)
        for module, name in names.items():
            inside = any(name.startswith(unit + ".") for unit in units.values())
            if not inside and (blocks.fullmatch(name) if blocks else False):
                units[module] = name
        for module, name in names.items():
            inside = any(name.startswith(unit + ".") for unit in units.values())
            if name and not inside and module not in units and not any(True for _ in module.children()):
                units[module] = name
        return units

    def __enter__(self):
        self.scope_of = scope_names(self.module)
        self.hooks = [torch.nn.modules.module.register_module_forward_pre_hook(self.enter_module),
                      torch.nn.modules.module.register_module_forward_hook(self.leave_module,
                                                                           always_call=True)]
        for unit, name in self.units.items():
            unit.forward = functools.partial(self.call_unit, unit, name, unit.forward)
        self.saved = torch.autograd.graph.saved_tensors_hooks(self.save, lambda t: t)
        self.saved.__enter__()
        self.segments = checkpoints(self.call_segment)
        self.segments.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.segments.__exit__(*error)
        self.saved.__exit__(*error)
        for unit in self.units:
            del unit.forward
        for hook in self.hooks:
            hook.remove()

    def enter_module(self, module, _arguments):
        self.scopes.append(self.scope_of.get(module, ""))

    def leave_module(self, _module, _arguments, _output):
        self.scopes.pop()

    def save(self, tensor):
        """Counts what backward will read, once, where it was made."""
        at = place(tensor)
        if self.current and at not in self.parameters and at not in self.input_places \
                and at not in self.stashed:
            self.stashed.add(at)
            self.maker.get(at, self.current).stash += tensor.untyped_storage().nbytes()
        return tensor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.current:
            return func(*args, **kwargs)
        given = tensors_in((args, kwargs))
        was = [(place(t), t._version) for t in given] if torch.is_grad_enabled() else None
        if was is None or not self.is_layer(func, args, kwargs, given, was):
            out = func(*args, **kwargs)
            self.inherit(out, given)
            return out
        scope = self.scopes[-1] if self.scopes else ""
        name = getattr(func, "__name__", "function").strip("_")
        return self.run(f"{scope}.{name}" if scope else name, func, args, kwargs, [], None)

    def is_layer(self, func, args, kwargs, given, was):
        """Tells whether a function makes an activation; it is tried on copies."""
        if not any(t.requires_grad or place(t) in self.active for t in given) or getattr(func, "__name__", "") in ("__get__", "__set__"):
            return False
        with self.quietly(), undisturbed(torch.nn.Module()):
            (again, more), _ = copied((args, kwargs))
            at = {place(t): t._version for t in tensors_in((again, more))}
            made = tensors_in(func(*again, **more))
        active = any(place(t) in self.active for t in given)
        return any(t.is_floating_point() and (t.requires_grad or active) and
                   (place(t) not in at or t._version != at[place(t)]) and
                   place(t) not in self.parameters for t in made)

    @contextlib.contextmanager
    def quietly(self):
        before, self.current = self.current, Layer("", [], [])
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            yield
        self.current = before

    def inherit(self, out, given):
        names = dict.fromkeys(name for t in given for name in self.origin.get(place(t), []))
        for t in tensors_in(out):
            self.alive.append(t)
            if place(t) not in self.parameters:
                self.origin.setdefault(place(t), list(names))

    def call_unit(self, unit, name, forward, *args, **kwargs):
        if self.current:
            return forward(*args, **kwargs)
        return self.run(name, forward, args, kwargs, list(unit.parameters()), unit)

    def module_of(self, function):
        """Returns the module whose forward a segment is, or None."""
        while isinstance(function, functools.partial):
            given = function.args[:1]
            if given and isinstance(given[0], torch.nn.Module) and self.scope_of.get(given[0]):
                return given[0]
            function = function.func
        module = getattr(function, "__self__", function)
        return module if isinstance(module, torch.nn.Module) and self.scope_of.get(module) else None

    def call_segment(self, function, args, kwargs, run, options):
        """A segment is a layer, which keeps what it is given and runs forward again."""
        if self.current:
            return run(function, args, kwargs)
        unit = self.module_of(function)
        scope = self.scopes[-1] if self.scopes else ""
        name = self.scope_of[unit] if unit else f"{scope}.checkpoint" if scope else "checkpoint"
        uses = Uses(self.parameters, self.origin)
        with self.quietly(), undisturbed(self.module), uses:
            function(*args, **kwargs)
        parameters = [t for at, t in uses.found.items() if at in self.parameters]
        captured = [t for at, t in uses.found.items() if at not in self.parameters]
        return self.run(name, lambda *given, **more: run(function, given, more), args, kwargs, parameters, unit,
                        captured, selective=options.get("context_fn") is not torch.utils.checkpoint.noop_context_fn)

    def called(self, name):
        self.names[name] = self.names.get(name, 0) + 1
        return name if self.names[name] == 1 else f"{name}#{self.names[name]}"

    def run(self, name, function, args, kwargs, parameters, unit, captured=None, selective=False):
        """Runs and times a layer; captured: of a checkpointed segment, what its function uses besides arguments."""
        given = tensors_in((args, kwargs))
        segment, known = captured is not None, {place(t) for t in given}
        given += [t for t in captured or [] if place(t) not in known]
        seen = {place(p) for p in parameters}
        parameters = parameters + [self.parameters[at] for at in dict.fromkeys(map(place, given))
                                   if at in self.parameters and at not in seen]
        inputs = list(dict.fromkeys(n for t in given for n in self.origin.get(place(t), [])))
        layer = Layer(self.called(name), inputs, parameters)
        layer.splits = not segment      # its parts would each run forward again
        self.claim(layer)
        self.current = layer
        with undisturbed(unit or torch.nn.Module()):
            stays = self.measure(layer, function, args, kwargs)
        out = function(*args, **kwargs)
        for t in given if segment and any(t.requires_grad for t in tensors_in(out)) else []:
            self.save(t)
        made = sum({place(t): size(t) for t in tensors_in(out)}.values())
        layer.stash += max(0, stays - made) if selective else 0
        self.current = None
        self.layers.append(layer)
        for buffer in unit.buffers() if unit else []:
            layer.state += size(buffer) if buffer.is_floating_point() else 0
        layer.state += sum(size(p) for p in layer.parameters if not p.requires_grad)
        active = bool(layer.parameters) or any(place(t) in self.active for t in given)
        for t in tensors_in(out):
            self.alive.append(t)
            if not t.is_floating_point():
                self.origin.setdefault(place(t), inputs)
                continue
            layer.activation += 0 if self.maker.get(place(t)) is layer else size(t)
            self.origin[place(t)], self.maker[place(t)] = [layer.name], layer
            if active:
                self.active.add(place(t))
        return out

    def claim(self, layer):
        """Notes whose parameters a layer trains, its own or those of a layer before."""
        learning = [p for p in layer.parameters if p.requires_grad]
        before = {self.owner[place(p)].name for p in learning if place(p) in self.owner}
        layer.own = [p for p in learning if place(p) not in self.owner]
        before = {self.named[name].shares or name for name in before}
        if len(before) > 1:
            raise SystemExit("pd_profile: \"{}\" has parameters of \"{}\" and \"{}\": choose blocks (--blocks) that "
                             "share those of one layer only".format(layer.name, *sorted(before)[:2]))
        layer.shares = before.pop() if before else None
        self.named[layer.name] = layer
        for p in layer.own:
            self.owner[place(p)] = layer

    def measure(self, layer, function, args, kwargs):
        learning = [p for p in layer.parameters if p.requires_grad]
        taken = {"forward": [], "backward": [], "input": [], "weight": []}
        with self.quietly(), torch.enable_grad():
            for turn in range(self.rounds + 1):
                (again, more), leaves = copied((args, kwargs))
                marks = [self.clock.now()]
                out = function(*again, **more)
                marks.append(self.clock.now())
                outputs = [t for t in tensors_in(out) if t.requires_grad]
                gradients = [torch.ones_like(t) for t in outputs]
                marks.append(self.clock.now())
                if outputs and leaves + learning:
                    torch.autograd.grad(outputs, leaves + learning, gradients, allow_unused=True,
                                        retain_graph=bool(leaves and learning and layer.splits))
                marks.append(self.clock.now())
                if outputs and leaves and learning and layer.splits:
                    torch.autograd.grad(outputs, leaves, gradients, allow_unused=True, retain_graph=True)
                    marks.append(self.clock.now())
                    torch.autograd.grad(outputs, learning, gradients, allow_unused=True)
                    marks.append(self.clock.now())
                if turn:
                    spans = self.clock.between(marks)
                    taken["forward"].append(spans[0])
                    taken["backward"].append(spans[2] if outputs else 0)
                    if len(spans) > 3:
                        taken["input"].append(spans[3])
                        taken["weight"].append(spans[4])
            layer.workspace, stays = self.workspace(learning, function, args, kwargs)
        layer.times = {key: statistics.median(spans) for key, spans in taken.items() if spans}
        both = sorted(f + b for f, b in zip(taken["forward"], taken["backward"]))
        layer.spread = (both[len(both) * 3 // 4] - both[len(both) // 4]) / max(1, statistics.median(both))
        return stays

    def workspace(self, learning, function, args, kwargs):
        """Returns the bytes that are there only while a layer runs: in forward those beyond what stays, in backward
        those beyond what was there and the gradients of inputs.  Those of parameters are added to the sum over
        microbatches, and go.  Returns the bytes that stay after forward, too."""
        (again, more), leaves = copied((args, kwargs))
        with Memory(self.device) as memory:
            out = function(*again, **more)
            memory.mark()
            outputs = [t for t in tensors_in(out) if t.requires_grad]
            gradients = [torch.ones_like(t) for t in outputs]
            memory.mark()
            made = torch.autograd.grad(outputs, leaves + learning, gradients, allow_unused=True) \
                if outputs and leaves + learning else []
        (forward, stays), (_, before), (backward, _) = memory.spans()
        return max(0, forward - stays, backward - before - sum(map(size, tensors_in(made[:len(leaves)])))), stays


def whole_steps(module, args, kwargs, loss, rounds, clock, optimizer):
    """Returns medians of a whole step's forward, backward and update."""
    spans = []
    learning = [p for p in module.parameters() if p.requires_grad]
    with undisturbed(module):
        for _ in range(rounds + 1):
            marks = [clock.now()]
            out = module(*args, **kwargs)
            outputs = [loss(out)] if loss else [t for t in tensors_in(out) if t.requires_grad]
            marks.append(clock.now())
            gradients = torch.autograd.grad(outputs, learning, [torch.ones_like(t) for t in outputs],
                                            allow_unused=True)
            marks.append(clock.now())
            spans.append(clock.between(marks))
            del out, outputs, gradients
    forward, backward = (statistics.median(s[i] for s in spans[1:]) for i in range(2))
    return forward, backward, update_ns(learning, rounds, clock, optimizer)


def update_ns(parameters, rounds, clock, optimizer):
    """Times the optimizer's step on parameters, which it leaves as they are."""
    if not parameters:
        return 0
    kept = [(p.detach().clone(), p.grad) for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    steps, spans = optimizer(parameters), []
    for _ in range(rounds + 1):
        marks = [clock.now()]
        steps.step()
        spans += clock.between(marks + [clock.now()])
    with torch.no_grad():
        for p, (value, grad) in zip(parameters, kept):
            p.copy_(value)
            p.grad = grad
    return statistics.median(spans[1:])


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.0, momentum=0.9)


def input_names(module, args, kwargs):
    """Names tensors that the network gets after the parameters of its forward."""
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    named = {}
    for name, value in bound.items():
        tensors = tensors_in(value)
        for i, t in enumerate(tensors):
            named.setdefault(place(t), (name if len(tensors) == 1 else f"{name}.{i}", t))
    return list(named.values())


def device_of(device):
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        return {"kind": "cuda", "name": about.name, "memory_bytes": about.total_memory}
    return {"kind": "cpu", "name": "PyTorch " + torch.__version__, "threads": torch.get_num_threads(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def profile(module, args, kwargs=None, loss=None, blocks=None, rounds=7, batch_size=None,
            optimizer=momentum, name=None):
    """Returns the document, a dict.

    args, kwargs: the arguments of one call, with one microbatch; loss(output) gives a number.  blocks: a
    regular expression for the names of modules that are one layer each.  rounds: how often each is timed.
    optimizer(parameters): what updates are timed with.
    """
    kwargs = kwargs or {}
    args = args if isinstance(args, (tuple, list)) else (args,)
    segment = lambda function, given, more, run, options: run(function, given, more)
    with uncompiled(module) as module, checkpoints(segment):
        return profile_plain(module, args, kwargs, loss, blocks, rounds, batch_size, optimizer, name)


def check_device(module, inputs):
    """Returns the device that a network is on, and refuses one on which nothing can be timed."""
    tensors = [*module.parameters(), *module.buffers(), *(t for _, t in inputs)]
    for t in tensors:
        if t.device.type == "meta" or hasattr(t, "fake_mode"):
            raise SystemExit("pd_profile: the network is on the meta device, on which nothing runs: expected it on the "
                             "device that trains it, as after module.to_empty(device=\"cpu\"); for a device that is not "
                             "there pd-model and pd-profile --device=NAME go by a data sheet")
        if t.device.type not in ("cpu", "cuda"):
            raise SystemExit(f"pd_profile: expected a network on cpu or cuda, found {t.device}: how its times and its "
                             "memory are measured is not known")
    if not any(p.requires_grad for p in module.parameters()):
        raise SystemExit("pd_profile: no parameter of the network is trained: expected one whose requires_grad is true")
    return tensors[0].device


def profile_plain(module, args, kwargs, loss, blocks, rounds, batch_size, optimizer, name):
    """Profiles a module that is not compiled; the arguments are those of profile()."""
    inputs = input_names(module, args, kwargs)
    device = check_device(module, inputs)
    clock = Clock(device)
    forward, backward, update = whole_steps(module, args, kwargs, loss, rounds, clock, optimizer)
    with undisturbed(module), Recorder(module, inputs, re.compile(blocks) if blocks else None, rounds,
                                       clock, device) as record:
        out = module(*args, **kwargs)
        if loss:
            loss(out)
    del out
    if not record.layers:
        raise SystemExit("pd_profile: the network has no layer that learns")
    scale = {"forward": forward / max(1, sum(layer.times["forward"] for layer in record.layers)),
             "backward": backward / max(1, sum(layer.times["backward"] for layer in record.layers))}
    updates = [update_ns(layer.own, rounds, clock, optimizer) for layer in record.layers]
    used = {n for layer in record.layers for n in layer.inputs}
    types = [p.dtype for p in module.parameters() if p.dtype in TYPES]
    document = {"format": "pd-profile", "version": 1, "name": name or type(module).__name__,
                "batch_size": batch_size or next((t.shape[0] for _, t in inputs if t.dim()), 1),
                "dtype": TYPES[max(set(types), key=types.count)] if types else "f32",
                "device": device_of(device),
                "step_ns": round(forward + backward + update),
                "inputs": [n for n, _ in inputs if n in used], "layers": []}
    for layer, update in zip(record.layers, updates):
        document["layers"].append(describe(layer, scale, update))
    return document


def describe(layer, scale, update):
    times = layer.times
    entry = {"name": layer.name, "inputs": layer.inputs,
             "forward_ns": round(times["forward"] * scale["forward"]),
             "backward_ns": round(times["backward"] * scale["backward"])}
    if "input" in times:
        entry["backward_input_ns"] = round(times["input"] * scale["backward"])
        entry["backward_weight_ns"] = round(times["weight"] * scale["backward"])
    entry.update(update_ns=round(update), activation_bytes=layer.activation,
                 parameter_bytes=sum(4 * p.numel() for p in layer.own), stash_bytes=layer.stash)
    if layer.shares:
        entry["shares"] = layer.shares
    for key, value in (("workspace_bytes", layer.workspace), ("state_bytes", layer.state)):
        if value:
            entry[key] = value
    entry["spread"] = round(layer.spread, 3)
    return entry


def exchange(rank, meeting, answer, cuda):
    """One of two processes: messages go to and fro."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("nccl" if cuda else "gloo", init_method=f"file://{meeting}", rank=rank,
                                         world_size=2)
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    ways = (torch.distributed.send, torch.distributed.recv)[::1 if rank == 0 else -1]

    def half_ns(elements):
        message, spans = torch.zeros(elements, device=device), []
        for _ in range(40):
            begun = time.perf_counter_ns()
            for way in ways:
                way(message, 1 - rank)
            if cuda:
                torch.cuda.synchronize()
            spans.append((time.perf_counter_ns() - begun) / 2)
        return statistics.median(spans[8:])

    latency, whole = half_ns(2), half_ns(1 << 18)
    if rank == 0:
        answer.put({"bandwidth_bytes_per_s": round((4 << 18) / max(1e-9, (whole - latency) / 1e9)),
                    "latency_ns": round(latency)})
    torch.distributed.destroy_process_group()


def link():
    """Measures the link between two processes, over NCCL with two GPUs, else over gloo."""
    context = torch.multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(exchange, (os.path.join(folder, "meeting"), answer,
                                               torch.cuda.device_count() > 1), nprocs=2)
    return answer.get()


def write(file, *args, **kwargs):
    """Profiles as profile() does, and writes the document."""
    document = profile(*args, **kwargs)
    with open(file, "w", encoding="utf-8") as out:
        json.dump(document, out, indent=1)
        out.write("\n")


def load(where):
    file, _, function = where.rpartition(":")
    if not file:
        raise SystemExit(f"pd_profile: expected FILE.py:FUNCTION, found \"{where}\"")
    spec = importlib.util.spec_from_file_location("profiled", file)
    code = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec.loader.exec_module(code)
    return getattr(code, function)()


def main():
    parser = argparse.ArgumentParser(description="Profiles a PyTorch module, and prints a pd-profile(5) document.")
    parser.add_argument("what", metavar="FILE.py:FUNCTION",
                        help="a function that returns a module, its arguments (a tuple or a dict), perhaps a loss, "
                        "loss(output), or loss(output, target) and the targets")
    parser.add_argument("--blocks", metavar="REGEX", help="modules of these names are one layer each")
    parser.add_argument("--rounds", type=int, default=7, help="how often each layer is timed (7)")
    parser.add_argument("--link", action="store_true", help="measure the link between two processes, too")
    parser.add_argument("--threads", type=int, help="threads that compute (PyTorch's default)")
    parser.add_argument("--name", help="the network's name")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    module, arguments, *more = load(options.what)
    loss = more[0] if more else None
    if len(more) == 2:
        loss = functools.partial(lambda measure, target, out: measure(out, target), *more)
    keywords = arguments if isinstance(arguments, dict) else None
    document = profile(module, () if keywords else arguments, keywords, loss, blocks=options.blocks,
                       rounds=options.rounds, name=options.name)
    if options.link:
        document["link"] = link()
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
