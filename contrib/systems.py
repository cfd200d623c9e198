# SPDX-License-Identifier: Apache-2.0
"""What other systems make of the answers that pd-plan writes for them.

    systems.py NAME...
        has each answer's system read it, and prints a JSON object for each: name, what read it, what it found.
        Any parameter or layer that is in no stage, or in two, ends the script.  The beginning of the name says which
        system is asked."""
import importlib.metadata
import importlib.util
import json
import logging
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore


def join(rank, size):
    """Makes this process a rank of so many, of which there are no others."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def once(parts, whole):
    """Returns how many parameters each part has, which together are the whole, each once."""
    names = [name for part in parts for name in part]
    assert sorted(names) == sorted(whole), set(names) ^ set(whole)
    for part in parts:
        assert all(part[name] == whole[name] for name in part)
    return [sum(part.values()) for part in parts]


def sizes(model):
    return {name: p.numel() for name, p in model.named_parameters()}


def torchtitan(path):
    import dataclasses
    from torch.distributed.device_mesh import init_device_mesh
    from torchtitan.distributed import pipeline_parallel as pp

    config = dataclasses.replace(load(path).planned())      # whose __post_init__ checks it
    for part in ("training", "parallelism"):
        setattr(config, part, dataclasses.replace(getattr(config, part)))
    how = config.parallelism
    degree = how.pipeline_parallel_degree
    world = degree * how.data_parallel_replicate_degree * how.data_parallel_shard_degree * how.tensor_parallel_degree
    per_step = config.training.local_batch_size * how.data_parallel_replicate_degree * how.data_parallel_shard_degree
    assert config.training.global_batch_size % per_step == 0
    config.model_spec.model.update_from_config(config=config)
    with torch.device("meta"):
        model = config.model_spec.model.build()
    whole, parts, schedules = sizes(model), {}, set()
    if degree == 1:
        parts[0] = whole
    for rank in range(degree if degree > 1 else 0):
        join(rank, degree)
        mesh = init_device_mesh("cpu", (degree,), mesh_dim_names=("pp",))
        stages, chunks = pp._pipeline_module_split(
            model, mesh, how.pipeline_parallel_schedule, torch.device("cpu"), how.module_fqns_per_model_part)
        for stage, chunk in zip(stages, chunks):
            parts[stage.stage_index] = sizes(chunk)
        schedule = pp._build_pipeline_schedule(
            parallelism=how, local_batch_size=config.training.local_batch_size, stages=stages,
            loss_fn=lambda *_: (0, 0))
        schedules.add((type(schedule).__name__, schedule._n_microbatches))
    assert len(schedules) <= 1
    name, microbatches = schedules.pop() if schedules else ("", config.training.global_batch_size // per_step)
    return {"devices": world, "stages": once([parts[s] for s in sorted(parts)], whole), "schedule": name,
            "microbatches": microbatches, "recompute": type(config.activation_checkpoint).__qualname__}


SYSTEMS = {"titan": (torchtitan, "torchtitan")}


def main():
    logging.disable(logging.WARNING)
    for name in sys.argv[1:]:
        judge, package = SYSTEMS[name.split("_")[0]]
        found = judge(pathlib.Path(name))
        print(json.dumps({"name": name, "read_by": f"{package} {importlib.metadata.version(package)}", **found}))


main()
