"""The schemas that constraints are checked with: the JSON Schema test suite, as the source package of
jsonschema carries it; definitions out of the schemas that the package check-jsonschema carries; and
tool definitions (tool_schemas.py). tools/setup.sh test fetches the packages into .cache/json-schemas.
"""

import json
import tarfile
import zipfile
from pathlib import Path

from tool_schemas import TOOLS

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".cache/json-schemas"
SUITE = FOLDER / "jsonschema-4.26.0.tar.gz"
REAL = FOLDER / "check_jsonschema-0.39.0-py3-none-any.whl"
DRAFT = "json/tests/draft2020-12/"
MAX_SCHEMA_BYTES = 64 << 10
# What editors show; refused as an unknown keyword, which a few hundred schemas need not tell again.
EDITOR_KEYWORD = "markdownDescription"


def package(path):
    if not path.exists():
        raise AssertionError(f"{path} is missing; run tools/setup.sh test")
    return path


def suite_groups():
    """(name, schema, tests) of each group of draft 2020-12; a test has data, valid, description."""
    groups = []
    with tarfile.open(package(SUITE)) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            _, _, name = member.name.partition(DRAFT)
            if not name.endswith(".json"):
                continue
            for group in json.load(archive.extractfile(member)):
                groups.append((f"{name}: {group['description']}", group["schema"], group["tests"]))
    return groups


def references(schema):
    """All that $ref names, wherever it stands."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from references(item)


def with_definitions(key, name, definitions):
    """A schema that is definitions[name], with those that it leads to; None: it leads elsewhere."""
    needed, waiting = {}, [name]
    while waiting:
        at = waiting.pop()
        if at in needed:
            continue
        if at not in definitions:
            return None
        needed[at] = definitions[at]
        for pointer in references(definitions[at]):
            prefix, _, rest = pointer.partition(f"#/{key}/")
            if prefix or not rest:
                return None
            waiting.append(rest.split("/")[0])
    return {"$ref": f"#/{key}/{name}", key: needed}


def without_editor_keyword(members):
    members.pop(EDITOR_KEYWORD, None)
    return members


def real_schemas():
    """(name, schema) of definitions in schemas of well-known files (CI systems, compose, ...)."""
    found = []
    with zipfile.ZipFile(package(REAL)) as archive:
        for path in sorted(archive.namelist()):
            if "/vendor/" not in path or not path.endswith(".json"):
                continue
            document = json.loads(archive.read(path), object_hook=without_editor_keyword)
            for key in ("definitions", "$defs"):
                definitions = document.get(key, {})
                for name in definitions:
                    schema = with_definitions(key, name, definitions)
                    if schema and len(json.dumps(schema)) <= MAX_SCHEMA_BYTES:
                        found.append((f"{Path(path).stem}: {name}", schema))
    return found


def all_schemas():
    """(name, schema) of everything."""
    return (
        [(f"tool: {name}", schema) for name, schema in TOOLS.items()]
        + [(name, schema) for name, schema, _ in suite_groups()]
        + real_schemas()
    )
