"""Writes the demo model's golden token ids: what the tokenizer that it was trained with
(internal/demo/model/bpe.py) makes of strings from the corpus, special tokens parsed.

    node reference.mjs --corpus | python3 golden.py > ../../../internal/vocab/testdata/demo.jsonl

Needs the package `regex`, which knows \\p{L}; text is put into normalization form C first, as
the tokenizer's tokenizer.json says and bpe.py, made for ASCII, does not."""
import json, os, sys, unicodedata

model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../internal/demo/model")
sys.path.insert(0, model)
import regex
import bpe

tokenizer = bpe.Tokenizer(os.path.join(model, "tokenizer.json"))
specials = regex.compile("(" + "|".join(regex.escape(s) for s in bpe.SPECIALS) + ")")


def encode(text):
    ids = []
    for part in specials.split(text):
        if part in bpe.SPECIALS:
            ids.append(tokenizer.id[part])
        elif part:
            ids += tokenizer.encode(unicodedata.normalize("NFC", part))
    return ids


seen = {}
for line in sys.stdin:
    c = json.loads(line)
    kind = c["kind"].split()[0]
    seen[kind] = seen.get(kind, -1) + 1
    # A tenth of each kind, and no string longer than 300 characters: a few hundred lines.
    if seen[kind] % 10 == 0 and len(c["text"]) <= 300:
        print(json.dumps({"kind": c["kind"], "text": c["text"], "ids": encode(c["text"])}))
