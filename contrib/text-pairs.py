#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sentences in English and German out of gettext catalogues, as arrays for pd-model gnmt.

    text-pairs.py --length=30 --vocabulary=8000 OUT <names-of-.mo-files

OUT/train and OUT/test have source.npy, source_length.npy, target.npy and labels.npy.  A token is a
word or a sign; the most frequent of each language are numbered from 4, in OUT/vocabulary.en and
OUT/vocabulary.de.  0 fills up, 1 is any other word, 2 begins a target and 3 ends a sentence.  Pairs
that do not fit into the length are left out, so that nothing is cut.  Every twentieth, by a checksum
of its words, is for the test; OUT/train.en and so on have the sentences themselves.
"""
import argparse, collections, gettext, os, re, struct, sys, zlib

PAD, UNKNOWN, BEGIN, END, FIRST = 0, 1, 2, 3, 4


def sentence(message):
    """The tokens of a message, without marks of keys, markup and placeholders; [] if it has none."""
    text = re.sub(r"<[^>]*>|[&_~](?=\w)|\([_&~]\w\)", "", message)
    text = re.sub(r"%[-+ #0]*[0-9.*$]*[hlqjzt]*[a-zA-Z]|\$\w+|\$\{\w+\}|%\w+%", " X ", text)
    return re.findall(r"\w+(?:['’-]\w+)*|[^\w\s]", text.lower())


def read_pairs(names, length):
    """Pairs of lists of tokens, each English sentence once, in an order of checksums."""
    pairs = {}
    for name in names:
        with open(name, "rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog
        for english, german in catalogue.items():
            if not isinstance(english, str) or not english or not german:
                continue
            source, target = sentence(english.split("\4")[-1]), sentence(german)
            # an end is added to each; single words teach no grammar
            if 3 <= len(source) < length and 3 <= len(target) < length:
                pairs.setdefault(tuple(source), target)
    return sorted(pairs.items(), key=lambda pair: (checksum(pair[0]), pair[0]))


def checksum(words):
    return zlib.crc32(" ".join(words).encode())


def vocabulary(sentences, size, name):
    """Numbers of the most frequent words, which it writes, a line each."""
    counts = collections.Counter(word for words in sentences for word in words)
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    words = words[:size - FIRST]
    with open(name, "w", encoding="utf-8") as out:
        out.writelines(f"{word}\n" for word in words)
    return {word: FIRST + i for i, word in enumerate(words)}


def save(name, shape, numbers):
    """An array of u16, as numpy.save writes it."""
    text = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}"
    header = text + " " * (-(len(text) + 11) % 64) + "\n"
    with open(name, "wb") as out:
        out.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode())
        out.write(struct.pack(f"<{len(numbers)}H", *numbers))


def write_set(folder, pairs, length, english, german):
    arrays = {"source": [], "source_length": [], "target": [], "labels": []}
    os.mkdir(folder)
    for source, target in pairs:
        source = [english.get(word, UNKNOWN) for word in source] + [END]
        target = [german.get(word, UNKNOWN) for word in target]
        arrays["source_length"].append(len(source))
        for name, tokens in (("source", source), ("target", [BEGIN] + target),
                             ("labels", target + [END])):
            arrays[name] += tokens + [PAD] * (length - len(tokens))
    for name, numbers in arrays.items():
        shape = f"({len(pairs)},)" if name == "source_length" else f"({len(pairs)}, {length})"
        save(f"{folder}/{name}.npy", shape, numbers)
    for language, words in ("en", 0), ("de", 1):
        with open(f"{folder}.{language}", "w", encoding="utf-8") as out:
            out.writelines(" ".join(pair[words]) + "\n" for pair in pairs)


parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, required=True)
parser.add_argument("--vocabulary", type=int, required=True)
parser.add_argument("out")
args = parser.parse_args()
if not FIRST < args.vocabulary <= 65536 or args.length < 4:
    parser.error("expected a vocabulary of 5 to 65536 words and a length of 4 or more")
all_pairs = read_pairs(sys.stdin.read().split(), args.length)
is_test = [checksum(source) % 20 == 0 for source, _ in all_pairs]
train = [pair for pair, test in zip(all_pairs, is_test) if not test]
test = [pair for pair, test in zip(all_pairs, is_test) if test]
en = vocabulary((source for source, _ in train), args.vocabulary, f"{args.out}/vocabulary.en")
de = vocabulary((target for _, target in train), args.vocabulary, f"{args.out}/vocabulary.de")
write_set(f"{args.out}/train", train, args.length, en, de)
write_set(f"{args.out}/test", test, args.length, en, de)
