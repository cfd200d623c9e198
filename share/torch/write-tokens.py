#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a text as tokens for pd-run --data=OUT, with a tokenizer of transformers, by name or folder:

    python3 write-tokens.py openai-community/gpt2 text.txt OUT

OUT/train.bin has the first nine tenths, OUT/val.bin the rest, both with the header of llm.c."""
import array, os, sys
from transformers import AutoTokenizer

name, text, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(name)
tokens = tokenizer.encode(open(text, encoding="utf-8").read())
wide = len(tokenizer) > 65536           # 32 bits a token, else 16
os.makedirs(out, exist_ok=True)
for part, few in ("train", tokens[:len(tokens) * 9 // 10]), ("val", tokens[len(tokens) * 9 // 10:]):
    with open(f"{out}/{part}.bin", "wb") as file:
        array.array("i", [20240801 if wide else 20240520, 7 if wide else 1, len(few)] + [0] * 253).tofile(file)
        array.array("I" if wide else "H", few).tofile(file)
