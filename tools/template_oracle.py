"""Renders templates with Python's jinja2, set up as Hugging Face's transformers sets it up.

    template_oracle.py CASES.json RESULTS.json   render every case
    template_oracle.py --template MODEL.gguf     print the model's chat template (empty when none)

CASES.json: a list of {"template": text, "vars": {...}, "now": [year, month, day, ...] or absent}.
RESULTS.json: a list of {"output": text} or {"error": text}, in the same order. The oracle of
tests/tokenizer/jinja_differential_test.cc; needs the package jinja2 (tools/setup.sh).
"""

import datetime
import json
import struct
import sys


def make_environment(now):
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """{% generation %}: renders its body as a scope of its own."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("_render")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _render(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda fmt: now.strftime(fmt)
    return environment


def render(case, compiled):
    now = tuple(case.get("now", [2025, 3, 9, 4, 5, 6]))
    try:
        key = (case["template"], now)
        if key not in compiled:
            environment = make_environment(datetime.datetime(*now))
            compiled[key] = environment.from_string(case["template"])
        output = compiled[key].render(**case["vars"])
        output.encode()  # a lone surrogate is no text
        return {"output": output}
    except Exception as error:  # whatever the template did wrong
        return {"error": f"{type(error).__name__}: {error}"}


def gguf_template(path):
    """The value of tokenizer.chat_template, found by walking the key-value pairs."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    with open(path, "rb") as file:
        def number(code):
            return struct.unpack("<" + code, file.read(struct.calcsize(code)))[0]

        def text():
            return file.read(number("Q"))

        if file.read(4) != b"GGUF":
            sys.exit(f"{path}: not a GGUF file")
        number("I"), number("Q")
        for _ in range(number("Q")):
            key, kind = text(), number("I")
            if kind == 8:
                value = text()
                if key == b"tokenizer.chat_template":
                    return value.decode()
            elif kind == 9:
                item, count = number("I"), number("Q")
                if item == 8:
                    for _ in range(count):
                        file.seek(number("Q"), 1)
                else:
                    file.seek(sizes[item] * count, 1)
            else:
                file.seek(sizes[kind], 1)
    return ""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--template":
        sys.stdout.write(gguf_template(sys.argv[2]))
        return
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    compiled = {}
    results = [render(case, compiled) for case in cases]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(results, file, ensure_ascii=True)


if __name__ == "__main__":
    main()
