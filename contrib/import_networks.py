# SPDX-License-Identifier: Apache-2.0
"""Networks as people have them, in PyTorch: folders that transformers writes, and ONNX files by the recipe
of pd-model(1).  For make-import-data.py, which makes the small ones of test/data/import, and for
import-judge.py.

A network is a Case: its module with parameters none of which equal each other, samples, what PyTorch
says of them in float64, and how it is written."""
import copy
import json
import math
import pathlib

import numpy
import torch
import transformers
from torch import nn
from torch.nn import functional

# The small networks: positions of a sample, features, tokens.
LENGTH, HIDDEN, TOKENS = 8, 16, 32
SAMPLES, STEPS, RATE, MOMENTUM = 8, 5, 0.05, 0.9


class Case:
    """draw(count) makes samples, input name -> tensor; logits(module, samples) gives [(logits, labels)]."""

    def __init__(self, name, module, draw, logits, rate=RATE):
        self.name, self.module, self.logits, self.rate = name, module, logits, rate
        for at, part in enumerate(("train", "test")):
            torch.manual_seed(11 + at)
            setattr(self, part, draw(SAMPLES))

    def loss(self, module, samples):
        return sum(functional.cross_entropy(x.movedim(1, -1).flatten(0, -2) if x.dim() == 4 else
                                            x.flatten(0, -2), y.long().flatten())
                   for x, y in self.logits(module, samples))

    def evaluated(self, module=None):
        """The loss of the test set, by the module as float64."""
        module = copy.deepcopy(module or self.module).double().eval()
        with torch.no_grad():
            return self.loss(module, doubled(self.test)).item()

    def trained(self, real=torch.float64):
        """The module after five updates, each by the whole training set, which normalisations of batches see
        at once; nothing is dropped."""
        module = without_dropout(copy.deepcopy(self.module).to(real).train())
        sgd = torch.optim.SGD(module.parameters(), lr=self.rate, momentum=MOMENTUM)
        for _ in range(STEPS):
            sgd.zero_grad()
            self.loss(module, doubled(self.train, real)).backward()
            sgd.step()
        return module.eval()

    def expected(self, trained):
        return {"loss": self.evaluated(), "trained": self.evaluated(trained), "steps": STEPS,
                "rate": self.rate, "momentum": MOMENTUM,
                "parameters": sum(values.numel() for values in self.module.parameters())}

    def save(self, folder, shard, dtype):
        """As transformers does.  A copy, since buffers that are not saved lose digits, too."""
        copy.deepcopy(self.module).to(dtype).save_pretrained(folder, max_shard_size=shard)

    def write_samples(self, folder):
        for part in ("train", "test"):
            to = pathlib.Path(folder) / part
            to.mkdir(parents=True, exist_ok=True)
            for name, values in getattr(self, part).items():
                values = values.half() if values.is_floating_point() else values
                numpy.save(to / f"{name}.npy", values.numpy())

    def write_expected(self, folder):
        """Returns what was trained."""
        trained = self.trained()
        (pathlib.Path(folder) / "expected.json").write_text(
            json.dumps(self.expected(trained), indent=1) + "\n", encoding="utf-8")
        return trained


def doubled(samples, real=torch.float64):
    return {name: values.to(real) if values.is_floating_point() else values
            for name, values in samples.items()}


def without_dropout(module):
    for part in module.modules():
        if type(part).__name__ in ("Dropout", "StochasticDepth", "DropPath"):
            part.p = part.drop_prob = 0.0
    return module


def unequal(module, seed=5):
    """Parameters and statistics that an exporter cannot take for one another.  Those of normalisations and
    biases begin equal, and small networks with numbers that hardly change anything; others keep what
    PyTorch drew.  All are rounded to 16 bits, so that a file may have either type."""
    torch.manual_seed(seed)
    small = sum(values.numel() for values in module.parameters()) < 10000
    saved = module.state_dict()         # a buffer that is not is made of the config again
    with torch.no_grad():
        for name, values in list(module.named_parameters()) + list(module.named_buffers()):
            if not values.is_floating_point() or name not in saved:
                continue
            if name.endswith("running_var"):
                values.copy_(0.5 + torch.rand_like(values))
            elif values.dim() < 2 or "layer_scale" in name:
                values.add_(0.2 * torch.randn_like(values))
            elif small and HIDDEN in values.shape:
                values.copy_(0.3 * torch.randn_like(values))
            values.copy_(values.bfloat16().to(values.dtype))
    return module.eval()


# ---- samples ----

def texts(vocabulary=TOKENS, length=LENGTH):
    def draw(count):
        tokens = torch.randint(vocabulary, (count, length + 1), dtype=torch.int32)
        return {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}
    return draw


def masked_texts(count):
    """Two sentences, padding on the right, and as many labels in each sample."""
    length = torch.randint(4, LENGTH + 1, (count,), dtype=torch.int32)
    labels = torch.full((count, LENGTH), -100, dtype=torch.int32)
    labels[:, 1:4:2] = torch.randint(TOKENS, (count, 2), dtype=torch.int32)
    return {"tokens": torch.randint(TOKENS, (count, LENGTH), dtype=torch.int32),
            "types": (torch.arange(LENGTH) > 2).int().repeat(count, 1), "length": length, "labels": labels}


def images(size, classes, channels=3, places=(), name="image", labels="labels"):
    def draw(count):
        return {name: torch.randn(count, channels, size, size).half().float(),
                labels: torch.randint(classes, (count, *places), dtype=torch.int32)}
    return draw


# ---- Hugging Face ----

def of_tokens(module, given):
    return [(module(input_ids=given["tokens"].long()).logits, given["labels"])]


def called(module, given):
    """What BERT makes of tokens, types and lengths."""
    seen = (torch.arange(given["tokens"].shape[1]) < given["length"][:, None]).long()
    return module(input_ids=given["tokens"].long(), token_type_ids=given["types"].long(), attention_mask=seen)


def of_masked(module, given):
    return [(called(module, given).logits, given["labels"])]


def of_pixels(module, given):
    return [(module(pixel_values=given["image"]).logits, given["label"])]


LLAMA = {"hidden_size": HIDDEN, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
         "vocab_size": TOKENS, "max_position_embeddings": LENGTH, "pad_token_id": None, "bos_token_id": 1,
         "eos_token_id": 2}
ENCODER = {"hidden_size": HIDDEN, "num_attention_heads": 2, "intermediate_size": 32,
           "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def hugging_face(layers=1):
    """name -> (class, config, draw, logits)."""
    t = transformers
    return {
        "gpt2": (t.GPT2LMHeadModel, t.GPT2Config(
            n_embd=HIDDEN, n_layer=layers, n_head=2, n_positions=LENGTH, vocab_size=TOKENS, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1), texts(), of_tokens),
        "bert": (t.BertForMaskedLM, t.BertConfig(
            num_hidden_layers=layers, vocab_size=TOKENS, max_position_embeddings=LENGTH, pad_token_id=0,
            **ENCODER), masked_texts, of_masked),
        "llama": (t.LlamaForCausalLM, t.LlamaConfig(
            num_hidden_layers=layers, tie_word_embeddings=False, rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                             "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 16}, **LLAMA), texts(), of_tokens),
        "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config(
            num_hidden_layers=layers, tie_word_embeddings=True, rope_theta=1e6, **LLAMA), texts(), of_tokens),
        "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config(
            num_hidden_layers=layers, tie_word_embeddings=True, head_dim=8, **LLAMA), texts(), of_tokens),
        "vit": (t.ViTForImageClassification, t.ViTConfig(
            num_hidden_layers=layers, image_size=8, patch_size=4, num_labels=6, **ENCODER),
                images(8, 6, labels="label"), of_pixels),
    }


def hugging_face_case(name, cls, config, draw, logits):
    torch.manual_seed(3)
    return Case(name, unequal(cls(config)), draw, logits)


# ---- ONNX ----

def arguments(given):
    """What a module is called with: all but labels, whole numbers as PyTorch wants them."""
    seen = {name: torch.arange(given["tokens"].shape[1]) < values[:, None] if name == "length" else values
            for name, values in given.items() if name != "labels"}
    return tuple(values if values.is_floating_point() else values.long() for values in seen.values())


def of_call(module, given):
    return [(module(*arguments(given)), given["labels"])]


class Squeeze(nn.Module):
    """Squeeze-and-excitation."""

    def __init__(self, channels, inside):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(channels, inside, 1), nn.Conv2d(inside, channels, 1)
        self.activation, self.scale_activation = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, x):
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


class ConvNet(nn.Module):
    def __init__(self, channels=8, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False),
                                  nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01), nn.Hardswish())
        self.depthwise = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
            nn.BatchNorm2d(channels), nn.ReLU())
        self.squeeze, self.project = Squeeze(channels, 4), nn.Conv2d(channels, channels, 1)
        self.avgpool, self.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, classes)

    def forward(self, image):
        x = self.stem(image)
        x = x + self.project(self.squeeze(self.depthwise(x)))
        return self.classifier(torch.flatten(self.avgpool(x), 1))


class Block(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.c_attn, self.c_proj = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.mlp = nn.Sequential(nn.Linear(features, 2 * features), nn.GELU(approximate="tanh"),
                                 nn.Linear(2 * features, features))

    def forward(self, x):
        batch, length, features = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(features, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, features))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """As many write it: the head shares the weight of the embedding."""

    def __init__(self, layers=1):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(TOKENS, HIDDEN), nn.Embedding(LENGTH, HIDDEN)
        self.h = nn.ModuleList(Block(HIDDEN, 2) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, TOKENS, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def double_conv(given, made):
    return nn.Sequential(nn.Conv2d(given, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=4, classes=3, bilinear=False):
        super().__init__()
        self.down, self.inside = double_conv(3, width), double_conv(width, 2 * width)
        self.pool = nn.MaxPool2d(2)
        self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"),
                                nn.Conv2d(2 * width, width, 1)) if bilinear else \
            nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join, self.out = double_conv(2 * width, width), nn.Conv2d(width, classes, 1)

    def forward(self, image):
        skip = self.down(image)
        x = self.up(self.inside(self.pool(skip)))
        return self.out(self.join(torch.cat((skip, x), 1)))


class Tokens(nn.Module):
    """A causal network of transformers, whose forward takes tokens and gives logits."""

    def __init__(self, module):
        super().__init__()
        self.m = module
        module.config.use_cache = False

    def forward(self, tokens):
        return self.m(input_ids=tokens).logits


class Masked(nn.Module):
    """BERT, whose forward takes tokens, types and a mask, and gives logits."""

    def __init__(self, module):
        super().__init__()
        self.m = module

    def forward(self, tokens, types, mask):
        return self.m(input_ids=tokens, token_type_ids=types, attention_mask=mask).logits


def causal(name):
    cls, config, *_ = hugging_face()[name]
    return Tokens(cls(config))


def small_vit():
    from torchvision.models import VisionTransformer
    return VisionTransformer(image_size=8, patch_size=4, num_layers=1, num_heads=2, hidden_dim=HIDDEN,
                             mlp_dim=2 * HIDDEN, num_classes=6)


def small_onnx():
    """name -> (module, draw)."""
    return {
        "convnet": (ConvNet, images(8, 6)),
        "gpt": (GPT, texts()),
        "torchvision-vit": (small_vit, images(8, 6, name="x")),
        "unet": (UNet, images(8, 3, places=(8, 8))),
        "llama-onnx": (lambda: causal("llama"), texts()),
    }


def onnx_case(name, make, draw, rate=RATE):
    torch.manual_seed(3)
    return Case(name, unequal(make()), draw, of_call, rate)


def write_onnx(case, file, recipe=True, external=False):
    """The recipe, or torch.onnx.export's defaults.  Two samples, as one would be taken for a scalar."""
    few = {name: values[:2] for name, values in case.train.items()}
    how = {"optimize": False, "opset_version": 23} if recipe else {}
    torch.onnx.export(case.module.eval(), arguments(few), str(file), dynamo=True, external_data=external,
                      verbose=False, **how)


def farthest(found, expected):
    """The largest difference in a tensor over that tensor's largest element, and where."""
    worst, where = 0.0, None
    for name, values in expected.items():
        off = ((values.double() - found[name].double()).abs().max() / values.abs().max().clamp(1e-30)).item()
        if not off <= worst:
            worst, where = off, name
    return worst if not math.isnan(worst) else math.inf, where
