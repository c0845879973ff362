#!/usr/bin/env python3
"""Renders templates with Jinja2, set up as Hugging Face transformers sets it up.

    golden.py TEMPLATES CONVERSATIONS   every template with every conversation
    golden.py --expressions FILE        each line of FILE as a template of its own

Prints JSON: for each render {"text": ...}, {"raised": ...} where the template
called raise_exception, or {"error": ...} with the name of the exception.
Needs the Python package jinja2 (Debian: python3-jinja2), nothing else.
"""

import datetime
import json
import pathlib
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

# The moment at which all goldens are rendered.
NOW = datetime.datetime(2026, 7, 4, 9, 5, 3)

# The variables of expressions.txt.
VARS = {
    "s": "Hello, World",
    "u": "Grüße 世界",
    "e": "",
    "n": 7,
    "f": 2.5,
    "t": True,
    "z": None,
    "l": [3, 1, 2],
    "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "x", "items_": [1, 2]},
    "users": [
        {"name": "ann", "age": 30, "role": "admin", "tags": {"k": "v1"}},
        {"name": "bob", "age": 25, "role": "user", "tags": {"k": "v2"}},
        {"name": "cid", "age": 30, "role": "user", "tags": {"k": "v3"}, "extra": True},
    ],
}


class Raised(Exception):
    """The template called raise_exception."""


class Generation(Extension):
    """{% generation %} as a block that only prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )

    def raise_exception(message):
        raise Raised(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


def render(template, variables):
    try:
        return {"text": template().render(**variables)}
    except Raised as e:
        return {"raised": str(e)}
    except Exception as e:  # any failure of a template is a result
        return {"error": type(e).__name__}


def main():
    env = environment()
    if sys.argv[1] == "--expressions":
        lines = pathlib.Path(sys.argv[2]).read_text().split("\n")
        cases = [line for line in lines if line and not line.startswith("##")]
        out = {}
        for case in cases:
            source = json.loads(case) if case.startswith('"') else case
            out[case] = render(lambda: env.from_string(source), VARS)
    else:
        conversations = json.loads(pathlib.Path(sys.argv[2]).read_text())
        out = {}
        for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
            template = env.from_string(path.read_text())
            out[path.stem] = {
                name: render(lambda: template, {"bos_token": "<bos>", "eos_token": "<eos>", **variables})
                for name, variables in conversations.items()
            }
    json.dump(out, sys.stdout, ensure_ascii=False, indent=1)
    print()


if __name__ == "__main__":
    main()
