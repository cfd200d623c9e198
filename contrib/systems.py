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
import shlex
import sys
import types

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


def arguments(path):
    """Reads a command of a shell: {"num-layers": ["6"], "bf16": []}."""
    found, name = {}, None
    for word in shlex.split(path.read_text(), comments=True):
        if word.startswith("--"):
            name = word[2:].split("=")[0]
            found[name] = word.split("=")[1:]
        elif name:
            found[name].append(word)
    return found


# An argument -> what TransformerConfig calls it, and its type; others of Megatron are not of the network or its layout.
MEGATRON = {"num-layers": int, "hidden-size": int, "ffn-hidden-size": int, "num-attention-heads": int,
            "num-query-groups": int, "kv-channels": int, "normalization": str, "attention-dropout": float,
            "hidden-dropout": float, "pipeline-model-parallel-size": int, "tensor-model-parallel-size": int,
            "pipeline-model-parallel-layout": str, "recompute-granularity": str, "recompute-method": str,
            "recompute-num-layers": int, "recompute-modules": list}
RENAMED = {"norm-epsilon": ("layernorm_epsilon", float), "swiglu": ("gated_linear_unit", bool),
           "microbatch-group-size-per-virtual-pipeline-stage": ("microbatch_group_size_per_vp_stage", int),
           "num-virtual-stages-per-pipeline-rank": ("virtual_pipeline_model_parallel_size", int),
           "add-qkv-bias": ("add_qkv_bias", bool), "qk-layernorm": ("qk_layernorm", bool),
           "sequence-parallel": ("sequence_parallel", bool), "bf16": ("bf16", bool), "fp16": ("fp16", bool)}
OTHERS = {"nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "group-query-attention", "seq-length",
          "max-position-embeddings", "position-embedding-type", "rotary-base", "rotary-percent", "use-rope-scaling",
          "rope-scaling-factor", "disable-bias-linear", "untie-embeddings-and-output-weights", "mock-data",
          "tokenizer-type", "vocab-size", "lr", "train-iters", "micro-batch-size", "global-batch-size",
          "use-distributed-optimizer"}


def megatron(path):
    import torch.nn.functional as F
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

    given = arguments(path)
    how = {"add_bias_linear": "disable-bias-linear" not in given}
    for name, values in given.items():
        if name in MEGATRON:
            key, kind = name.replace("-", "_"), MEGATRON[name]
        elif name in RENAMED:
            key, kind = RENAMED[name]
        else:
            assert name in OTHERS, name
            continue
        how[key] = values if kind is list else True if kind is bool else kind(values[0])
    if how.get("gated_linear_unit"):
        how["activation_func"] = F.silu
    pp, layout = how["pipeline_model_parallel_size"], how.get("pipeline_model_parallel_layout")
    virtual = how.get("virtual_pipeline_model_parallel_size", 1)
    if layout:
        virtual = PipelineParallelLayerLayout.get_num_stages_from_str(layout) // pp
    how["virtual_pipeline_model_parallel_size"] = virtual if virtual > 1 else None
    # one device of each group of tensor parallelism is built, with the whole of the layers
    tensor, sequence = how.pop("tensor_model_parallel_size", 1), how.pop("sequence_parallel", False)
    config = TransformerConfig(use_cpu_initialization=True, perform_initialization=False, pipeline_dtype=torch.float32,
                               **how)
    TransformerConfig(pipeline_dtype=torch.float32, tensor_model_parallel_size=tensor, sequence_parallel=sequence, **how)
    parts = {}
    for rank in range(pp):
        parallel_state.destroy_model_parallel()
        join(rank, pp)
        parallel_state.initialize_model_parallel(
            1, pp, how["virtual_pipeline_model_parallel_size"])
        for chunk in range(virtual):
            model = GPTModel(
                config, get_gpt_layer_local_spec(normalization=how["normalization"], qk_layernorm=config.qk_layernorm),
                int(given["vocab-size"][0]), int(given["max-position-embeddings"][0]),
                pre_process=rank == 0 and chunk == 0, post_process=rank == pp - 1 and chunk == virtual - 1,
                share_embeddings_and_output_weights="untie-embeddings-and-output-weights" not in given,
                position_embedding_type=given.get("position-embedding-type", ["learned_absolute"])[0],
                vp_stage=chunk if virtual > 1 else None)
            parts[chunk * pp + rank] = (sum(sizes(model).values()), [layer.layer_number for layer in model.decoder.layers])
    order = [parts[s] for s in sorted(parts)]
    blocks = [number for _, layers in order for number in layers]
    assert blocks == list(range(1, config.num_layers + 1)), blocks
    data = int(given["nnodes"][0]) * int(given["nproc-per-node"][0]) // pp // tensor
    batch, micro = int(given["global-batch-size"][0]), int(given["micro-batch-size"][0])
    assert batch % (micro * data) == 0
    return {"devices": data * pp * tensor, "stages": [count for count, _ in order], "virtual": virtual,
            "blocks": [len(layers) for _, layers in order], "microbatches": batch // micro // data,
            "recompute": " ".join([config.recompute_granularity or "none"] + how.get("recompute_modules", []))}


def deepspeed(path):
    import deepspeed.runtime.config as runtime
    from deepspeed.runtime.pipe.topology import PipeDataParallelTopology

    module = load(path)
    planned = module.PlannedModule
    import deepspeed.runtime.pipe.module as pipe

    taken = {}
    original, pipe.PipelineModule.__init__ = pipe.PipelineModule.__init__, lambda self, layers, **options: taken.update(options)
    planned(list(range(8)), loss_fn=None)
    pipe.PipelineModule.__init__ = original
    stages = taken["num_stages"]
    bounds = []
    data = module.CONFIG["train_batch_size"] // (
        module.CONFIG["train_micro_batch_size_per_gpu"] * module.CONFIG["gradient_accumulation_steps"])
    for stage in range(stages):
        probe = planned.__new__(planned)
        torch.nn.Module.__init__(probe)
        probe._layer_specs, probe.num_stages, probe.global_rank = list(range(9)), stages, stage * data
        probe._topo = PipeDataParallelTopology(stages, data)
        probe._partition_layers()
        bounds.append(probe._local_stop - probe._local_start)
    mpu = types.SimpleNamespace(get_data_parallel_world_size=lambda: data)
    runtime.dist.get_rank = lambda: 0       # nobody is started
    config = runtime.DeepSpeedConfig(module.CONFIG, mpu)
    return {"devices": stages * data, "modules": bounds, "microbatches": config.gradient_accumulation_steps,
            "batch": config.train_batch_size, "zero": config.zero_optimization_stage,
            "bf16": bool(config.bfloat16_config.enabled), "checkpoint": taken["activation_checkpoint_interval"]}


SYSTEMS = {"deepspeed": (deepspeed, "deepspeed"), "megatron": (megatron, "megatron-core"), "titan": (torchtitan, "torchtitan")}


def main():
    logging.disable(logging.WARNING)
    for name in sys.argv[1:]:
        judge, package = SYSTEMS[name.split("_")[0]]
        found = judge(pathlib.Path(name))
        print(json.dumps({"name": name, "read_by": f"{package} {importlib.metadata.version(package)}", **found}))


main()
