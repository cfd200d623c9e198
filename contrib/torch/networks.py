# SPDX-License-Identifier: Apache-2.0
"""Small networks of torchvision and transformers, as pd_profile.py takes them: module, arguments, loss.

check.sh runs them.  Some have what is hard to profile: modules and parameters that are used twice, work in
place, functions between modules, tuples and dictionaries of tensors, segments that are checkpointed, parameters
that are frozen, what is compiled.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def images(make, side=64, **options):
    module = make(num_classes=10, **options).train()
    x, labels = torch.randn(4, 3, side, side), torch.randint(10, (4,))
    return module, (x,), lambda out: F.cross_entropy(out, labels)


def resnet18():
    from torchvision import models
    return images(models.resnet18)


def mobilenet_v3():
    from torchvision import models
    return images(models.mobilenet_v3_small)


def efficientnet_b0():
    from torchvision import models
    return images(models.efficientnet_b0)


def googlenet():
    from torchvision import models
    return images(models.googlenet, aux_logits=False, init_weights=False)


def vit():
    from torchvision import models
    return images(models.VisionTransformer, 32, image_size=32, patch_size=8, num_layers=2, num_heads=4,
                  hidden_dim=64, mlp_dim=128)


def tokens(network, config, labels="input_ids", **sizes):
    import transformers
    module = getattr(transformers, network)(getattr(transformers, config)(
        vocab_size=100, bos_token_id=0, eos_token_id=0, **sizes)).train()
    given = {"input_ids": torch.randint(100, (2, 16))}
    if labels != "input_ids":
        given[labels] = torch.randint(100, (2, 16))
    if network != "BertForMaskedLM":
        given["use_cache"] = False
    return module, given, lambda out: F.cross_entropy(out.logits.flatten(0, 1), given[labels].flatten())


def gpt2():
    return tokens("GPT2LMHeadModel", "GPT2Config", n_layer=2, n_embd=64, n_head=4)


def bert():
    return tokens("BertForMaskedLM", "BertConfig", num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
                  intermediate_size=128)


def llama():
    return tokens("LlamaForCausalLM", "LlamaConfig", num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
                  num_key_value_heads=2, intermediate_size=128)


def t5():
    return tokens("T5ForConditionalGeneration", "T5Config", "decoder_input_ids", d_model=64, num_layers=2, d_ff=128,
                  num_heads=4, d_kv=16)


def lstm():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.steps = nn.Embedding(50, 32), nn.LSTM(32, 32, 2, batch_first=True)
            self.logits = nn.Linear(32, 50)

        def forward(self, x):
            states, _ = self.steps(self.tokens(x))
            return self.logits(states)

    x = torch.randint(50, (4, 10))
    return Language(), (x,), lambda out: F.cross_entropy(out.flatten(0, 1), x.flatten())


def shared():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.out, self.relu = nn.Linear(32, 32), nn.Linear(32, 32), nn.ReLU(inplace=True)
            self.out.weight = self.a.weight

        def forward(self, given):
            x, y = given["pair"]
            h = self.a(self.relu(self.a(x)))
            h += x
            left, right = h.chunk(2, -1)
            return {"out": self.out(torch.cat([right, left], -1)) * y}

    return Shared(), ({"pair": (torch.randn(8, 32), torch.randn(8, 1))},)


def unet():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
            self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)

        def forward(self, x):
            skip = F.relu(self.down(x))
            deep = F.relu(self.deep(F.max_pool2d(skip, 2)), inplace=True)
            return self.out(torch.cat([skip, self.up(deep)], 1))

    labels = torch.randint(2, (4, 32, 32))
    return Net(), (torch.randn(4, 3, 32, 32),), lambda out: F.cross_entropy(out, labels)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, length, width = x.shape
        heads = [t.view(samples, length, 4, width // 4).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, -1)]
        seen = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)
        x = x + self.proj(seen.reshape(samples, length, width))
        return x + self.out(F.gelu(self.fc(self.ln_2(x))))


class Language(nn.Module):
    def __init__(self, blocks, width, words, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.h = nn.ModuleList([Block(width) for _ in range(blocks)])
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x):
        x = self.tokens(x) + self.places
        for block in self.h:
            x = block(x)
        return self.head(self.ln(x))


class Levels(nn.Module):
    """A U-Net of one level, with a block before and one behind: its skip stays inside of one stage."""

    def __init__(self, width):
        super().__init__()
        self.stem, self.net, self.head = nn.Conv2d(3, 3, 3, padding=1), unet()[0], nn.Conv2d(2, 10, 3, padding=1)
        self.deeper = nn.Sequential(nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 3, padding=1))

    def forward(self, x):
        return self.head(self.deeper(self.net(self.stem(x))))


class Segments(nn.Module):
    """Blocks that run forward again in backward: they keep their inputs alone."""

    def __init__(self, segment):
        super().__init__()
        self.f = nn.ModuleList([nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(4)])
        self.out, self.segment = nn.Linear(128, 10), segment

    def forward(self, x):
        for f in self.f:
            x = x + self.segment(f, x)
        return self.out(x)


def segments(segment):
    labels = torch.randint(10, (64,))
    return Segments(segment), (torch.randn(64, 128),), lambda out: F.cross_entropy(out, labels)


def checkpointed():
    return segments(lambda f, x: checkpoint(f, x, use_reentrant=False))


def checkpointed_reentrant():
    return segments(lambda f, x: checkpoint(f, x, use_reentrant=True))


def checkpointed_closure():
    return segments(lambda f, x: checkpoint(lambda: f(x), use_reentrant=False))


def checkpointed_llama():
    module, *more = llama()
    module.gradient_checkpointing_enable()
    return module, *more


class Adapted(nn.Module):
    """A linear layer that is frozen, beside two that learn (LoRA)."""

    def __init__(self, inner, rank=4):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.a, self.b = nn.Linear(inner.in_features, rank, False), nn.Linear(rank, inner.out_features, False)

    def forward(self, x):
        return self.inner(x) + self.b(self.a(x))


def adapted():
    module, *more = segments(lambda f, x: F.gelu(f(x)))
    module.f[:2].requires_grad_(False)
    module.f[2][0], module.f[3][2] = Adapted(module.f[2][0]), Adapted(module.f[3][2])
    return module, *more


def compiled():
    module, *more = segments(lambda f, x: f(x))
    module.f[1] = torch.compile(module.f[1], backend="aot_eager")
    module.f[2].compile(backend="aot_eager")
    return torch.compile(module, backend="aot_eager"), *more


# What pd_run.py trains has a loss of its output and the targets.
def train_resnet18():
    from torchvision import models
    return models.resnet18(num_classes=10).train(), (torch.randn(4, 3, 32, 32),), F.cross_entropy, \
        torch.randint(10, (4,))


def train_lenet():
    module = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(),
                           nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(),
                           nn.Linear(84, 10))
    return module, (torch.randn(64, 1, 28, 28),), F.cross_entropy, torch.randint(10, (64,))


def train_vgg11():
    from torchvision import models
    return models.vgg11(num_classes=10).train(), (torch.randn(4, 3, 64, 64),), F.cross_entropy, \
        torch.randint(10, (4,))


def train_gpt():
    def loss(out, target):
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    return Language(4, 128, 256, 64), (torch.randint(256, (4, 64)),), loss, torch.randint(256, (4, 64))


def train_unet():
    return Levels(32), (torch.randn(4, 3, 32, 32),), F.cross_entropy, torch.randint(10, (4, 32, 32))


ALL = (resnet18, mobilenet_v3, efficientnet_b0, googlenet, vit, gpt2, bert, llama, t5, lstm, shared, unet,
       checkpointed, checkpointed_reentrant, checkpointed_closure, checkpointed_llama, adapted, compiled)
