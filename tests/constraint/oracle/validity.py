"""What is valid, as Python's jsonschema says (draft 2020-12, formats checked)."""

import json

import jsonschema

CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
# What constraints enforce; some are checked only where further packages are installed.
FORMATS = {"date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6"}
assert FORMATS <= CHECKER.checkers.keys(), FORMATS - CHECKER.checkers.keys()

SPOKEN_OF = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
ONE = ("items", "additionalProperties")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
MAPS = ("properties", "$defs", "definitions")


def rewritten(schema, change):
    """`change` applied to every schema inside `schema`, the innermost first."""
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key in ONE:
            value = rewritten(value, change)
        elif key in LISTS and isinstance(value, list):
            value = [rewritten(item, change) for item in value]
        elif key in MAPS and isinstance(value, dict):
            value = {name: rewritten(item, change) for name, item in value.items()}
        out[key] = value
    return change(out)


def without_nullable(schema):
    """`nullable` is OpenAPI's; JSON Schema ignores it."""
    if schema.get("nullable") is not True:
        return schema
    # References lead past the definitions of a root, so these stay outside.
    outside = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    inside = {key: value for key, value in schema.items() if key not in ("nullable", *outside)}
    return {"anyOf": [inside, {"type": "null"}], **outside}


def as_written(schema):
    """What constraints write of a schema by themselves (docs/serving.md): values of the types that its
    keywords speak of, and no members beside `properties` unless additionalProperties says so."""
    schema = dict(schema)
    if "properties" in schema:
        schema.setdefault("additionalProperties", False)
    if not {"type", "enum", "const"} & schema.keys():
        types = [name for name, keywords in SPOKEN_OF.items() if any(k in schema for k in keywords)]
        if types:
            schema["type"] = types
    return schema


def validator(schema):
    schema = rewritten(schema, without_nullable)
    if isinstance(schema, dict):  # a dialect of another draft reads `items` and `$ref` otherwise
        schema.pop("$schema", None)
    return jsonschema.Draft202012Validator(schema, format_checker=CHECKER)


def narrow_validator(schema):
    return validator(rewritten(schema, as_written))


def fault(checked_by, text):
    """Why the text is no valid reply; None: it is one."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    error = next(checked_by.iter_errors(value), None)
    return error and f"{error.json_path}: {error.message[:200]}"
