# SPDX-License-Identifier: Apache-2.0
"""PyTorch judges what was read in, trained and exported: see import-judge.sh.

    import-judge.py list                       names of networks
    import-judge.py write NETWORK FOLDER       what a user of PyTorch has, samples, expected.json
    import-judge.py judge NETWORK FOLDER EXPORTED LOSS
        loads what pd-export wrote as a user would, into a fresh network.  Exit status 4: a parameter differs
        from five updates in float64 by more than a ten-thousandth of the largest of its tensor, or
        PyTorch's loss of the test set is not LOSS, which pd-run said, to 1e-6
    import-judge.py same NETWORK EXPORTED      exit status 4: not the bits that the network began with"""
import json
import pathlib
import sys

import torch
import torchvision
import transformers
from safetensors.torch import load_file

import import_families as families
import import_networks as networks
from import_networks import images, texts

PIXELS, CLASSES, SLOW = 64, 10, 2e-5
SHARDED, HALF = {"llama"}, {"mistral"}


def followed_texts(count):
    return networks.masked_texts(count) | {"follows": torch.randint(2, (count,), dtype=torch.int32)}


def of_pretraining(module, given):
    out = networks.called(module, given)
    return [(out.prediction_logits, given["labels"]), (out.seq_relationship_logits, given["follows"])]


def of_transformers():
    """name -> (class, config, draw, logits)."""
    t, known = transformers, networks.hugging_face(2)
    cls, llama, *rest = known["llama"]
    bert = known["bert"][1]
    return known | families.families() | {
        "bert_pretraining": (t.BertForPreTraining, bert, followed_texts, of_pretraining),
        "llama_biases": (cls, t.LlamaConfig(**llama.to_dict() | {"attention_bias": True, "mlp_bias": True}),
                         *rest),
        "mistral": (t.MistralForCausalLM, t.MistralConfig(**networks.LLAMA | {
            "num_hidden_layers": 2, "sliding_window": 3, "pad_token_id": 0}), *rest),
        "qwen2_window": (t.Qwen2ForCausalLM, t.Qwen2Config(**networks.LLAMA | {
            "num_hidden_layers": 2, "sliding_window": 3, "use_sliding_window": True,
            "max_window_layers": 1}), *rest),
    }


def published(make):
    return lambda: make(num_classes=CLASSES)


def vit():
    return torchvision.models.VisionTransformer(image_size=PIXELS, patch_size=16, num_layers=3, num_heads=4,
                                                hidden_dim=64, mlp_dim=128, num_classes=CLASSES)


def timm_vit():
    import timm
    return timm.create_model("vit_tiny_patch16_224", img_size=PIXELS, depth=3, num_classes=CLASSES)


def made(name):
    cls, config, *_ = of_transformers()[name]
    return cls(config)


def t5(kind, cls=transformers.T5ForTokenClassification):
    """PyTorch can export its attention where it is written out."""
    return cls(transformers.T5Config(
        vocab_size=networks.TOKENS, d_model=networks.HIDDEN, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
        relative_attention_num_buckets=8, relative_attention_max_distance=6, dropout_rate=0.0,
        feed_forward_proj=kind, num_labels=6, tie_word_embeddings=False, scale_decoder_outputs=False,
        use_cache=False, attn_implementation="eager"))


class MaskedTokens(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.m = module

    def forward(self, tokens, mask):
        return self.m(input_ids=tokens, attention_mask=mask).logits


class Translating(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.m = module

    def forward(self, tokens, to):
        return self.m(input_ids=tokens, decoder_input_ids=to).logits


def translated(count):
    made, other = texts()(count), texts(length=6)(count)
    return {"tokens": made["tokens"], "to": other["tokens"], "labels": other["labels"]}


class Pooled(torch.nn.Module):
    """Adaptive pooling to sizes that are no divisors: windows of one size along one axis, of several along the other."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.AdaptiveAvgPool2d((7, 3))
        self.fc = torch.nn.Linear(84, 6)

    def forward(self, image):
        return self.fc(torch.flatten(self.pool(self.conv(image)), 1))


def tagged(count):
    made = texts()(count)
    return made | {"labels": made["labels"] % 6}


def masked_tagged(count):
    made = tagged(count)
    length = torch.randint(3, networks.LENGTH + 1, (count,), dtype=torch.int32)
    return {"tokens": made["tokens"], "length": length, "labels": made["labels"]}


def of_onnx():
    """name -> (module, draw) or (module, draw, rate).  Some inputs of many relus are 0 up to rounding, so
    such networks learn slowly: float32 then stays near float64."""
    models, x = torchvision.models, images(PIXELS, CLASSES, name="x")
    pixels = images(32, 3, places=(32, 32))
    return networks.small_onnx() | {
        "resnet18": (published(models.resnet18), x, SLOW),
        "mobilenet_v3_small": (published(models.mobilenet_v3_small), x, SLOW),
        "efficientnet_b0": (published(models.efficientnet_b0), x, SLOW),
        "convnext_tiny": (published(models.convnext_tiny), x, 0.001),
        "vit_torchvision": (vit, x, 0.001),
        "vit_timm": (timm_vit, x, 0.001),
        "pooled": (Pooled, images(10, 6)),
        "unet_transposed": (lambda: networks.UNet(8, 3), pixels),
        "unet_bilinear": (lambda: networks.UNet(8, 3, bilinear=True), pixels),
        "bert_onnx": (lambda: networks.Masked(made("bert")), networks.masked_texts),
        "mistral_onnx": (lambda: networks.Tokens(made("mistral")), texts()),
        "gpt2_onnx": (lambda: networks.Tokens(made("gpt2")), texts()),
        "t5_onnx": (lambda: networks.Tokens(t5("relu")), tagged),
        "t5_gated_onnx": (lambda: MaskedTokens(t5("gated-gelu")), masked_tagged),
        "t5_decoder_onnx": (lambda: Translating(t5("relu", transformers.T5ForConditionalGeneration)), translated),
        "qwen3_onnx": (lambda: networks.Tokens(made("qwen3")), texts()),
    }


def case_of(name):
    if name in of_transformers():
        return networks.hugging_face_case(name, *of_transformers()[name])
    return networks.onnx_case(name, *of_onnx()[name])


def write(name, folder):
    case = case_of(name)
    folder.mkdir(parents=True)
    if name in of_transformers():
        case.save(folder, "9KB" if name in SHARDED else "1GB",
                  torch.bfloat16 if name in HALF else torch.float32)
    else:
        networks.write_onnx(case, folder / "model.onnx")
    case.write_samples(folder)
    trained = case.write_expected(folder)
    torch.save(trained.state_dict(), folder / "trained.pt")
    single = case.trained(torch.float32).state_dict()
    print("{}: updates move a parameter by up to {:.1e}; PyTorch's own float32 is off by {:.1e} ({})".format(
        name, networks.farthest(dict(case.module.named_parameters()), dict(trained.named_parameters()))[0],
        *networks.farthest(single, floats(trained.state_dict()))))


def floats(tensors):
    """Without counters."""
    return {name: values for name, values in tensors.items() if values.is_floating_point()}


def loaded(name, exported):
    """The network with the exported weights, all of them and no others."""
    case = case_of(name)
    if name in of_transformers():
        module, about = type(case.module).from_pretrained(exported, output_loading_info=True,
                                                          dtype=torch.float32)
        wrong = [f"{what}: {sorted(map(str, names))}" for what, names in about.items() if names]
        if wrong:
            raise SystemExit("; ".join(wrong))
        return case, module.eval()
    found = {}
    for file in sorted(exported.glob("*.safetensors")):
        found.update(load_file(file))
    with torch.no_grad():
        for values in case.module.parameters():
            values.zero_()
    missing, surplus = case.module.load_state_dict(found, strict=False)
    if surplus or missing:
        raise SystemExit(f"missing {missing}, too much {surplus}")
    return case, case.module.eval()


def judge(name, folder, exported, loss):
    case, module = loaded(name, exported)
    expected = torch.load(folder / "trained.pt")
    worst, where = networks.farthest(module.state_dict(), floats(expected))
    mine = case.evaluated(module)
    print(f"parameters off by {worst:.1e} at most ({where}); loss {loss:.8f}, "
          f"PyTorch's of what was exported differs by {abs(mine - loss):.1e}")
    return 0 if worst <= 1e-4 and abs(mine - loss) <= 1e-6 else 4


def same(name, exported):
    first = case_of(name).module
    _, module = loaded(name, exported)
    wrong = [key for key, values in module.named_parameters()
             if not torch.equal(values, dict(first.named_parameters())[key])]
    print(f"not the bits of the beginning: {wrong}" if wrong else "the bits of the beginning")
    return 4 if wrong else 0


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    match sys.argv[1:]:
        case ["list"]:
            print(*of_transformers(), *of_onnx())
        case ["write", name, folder]:
            write(name, pathlib.Path(folder))
        case ["judge", name, folder, exported, loss]:
            return judge(name, pathlib.Path(folder), pathlib.Path(exported), float(json.loads(loss)))
        case ["same", name, exported]:
            return same(name, pathlib.Path(exported))
        case _:
            raise SystemExit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
