"""Parameters of tools as coding agents and MCP servers define them, written for these tests in the
styles that are met: by hand, out of pydantic ($defs, anyOf with null, title) and out of zod
($schema, additionalProperties false, bounds). All of them must be accepted."""


def obj(required="", closed=None, **properties):
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required.split()
    if closed is not None:
        schema["additionalProperties"] = closed
    return schema


def string(description=None, **more):
    return {"type": "string", **({"description": description} if description else {}), **more}


def array(items, **more):
    return {"type": "array", "items": items, **more}


def one_of(*values, **more):
    return {"type": "string", "enum": list(values), **more}


def or_null(schema, **more):
    return {"anyOf": [schema, {"type": "null"}], "default": None, **more}


INT = {"type": "integer"}
NUMBER = {"type": "number"}
BOOL = {"type": "boolean"}
TEXT = {"type": "string"}
DRAFT7 = {"$schema": "http://json-schema.org/draft-07/schema#"}

# ---- Coding agents

TOOLS = {
    "read_file": obj(
        "file_path",
        file_path=string("The absolute path to the file to read"),
        offset={"type": "number", "description": "The line to start from"},
        limit={"type": "number", "description": "How many lines"},
    ),
    "read_file_bounds": obj(
        "path",
        False,
        path=string(minLength=1, maxLength=4096),
        start_line={**INT, "minimum": 1},
        end_line={**INT, "minimum": 1, "maximum": 1000000},
    ),
    "write_file": obj("file_path content", False, file_path=TEXT, content=TEXT),
    "edit": {
        **DRAFT7,
        **obj(
            "file_path old_string new_string",
            False,
            file_path=TEXT,
            old_string=TEXT,
            new_string=string("Must differ from old_string"),
            replace_all={**BOOL, "default": False},
        ),
    },
    "multi_edit": {
        **DRAFT7,
        **obj(
            "file_path edits",
            False,
            file_path=TEXT,
            edits=array(
                obj(
                    "old_string new_string",
                    False,
                    old_string=TEXT,
                    new_string=TEXT,
                    replace_all={**BOOL, "default": False},
                ),
                minItems=1,
            ),
        ),
    },
    "bash": obj(
        "command",
        False,
        command=string("The command to execute"),
        timeout={**NUMBER, "description": "Milliseconds, at most 600000"},
        description=string("What it does, in 5 to 10 words"),
        run_in_background=BOOL,
    ),
    "shell_argv": obj(
        "command",
        False,
        command=array(TEXT),
        workdir=TEXT,
        timeout_ms=NUMBER,
        with_escalated_permissions=BOOL,
        justification=TEXT,
    ),
    "apply_patch": obj("input", False, input=string("The entire contents of the patch")),
    "grep": obj(
        "pattern",
        False,
        **{
            "pattern": TEXT,
            "path": TEXT,
            "glob": TEXT,
            "output_mode": one_of("content", "files_with_matches", "count"),
            "-A": NUMBER,
            "-B": NUMBER,
            "-i": BOOL,
            "head_limit": NUMBER,
            "multiline": BOOL,
        },
    ),
    "glob": obj("pattern", False, pattern=TEXT, path=TEXT),
    "list_dir": obj("path", path=TEXT, ignore=array(TEXT), recursive=BOOL, depth={**INT, "minimum": 0}),
    "todo_write": {
        **DRAFT7,
        **obj(
            "todos",
            False,
            todos=array(
                obj(
                    "content status activeForm",
                    False,
                    content=string(minLength=1),
                    status=one_of("pending", "in_progress", "completed"),
                    activeForm=string(minLength=1),
                )
            ),
        ),
    },
    "update_plan": obj(
        "plan",
        False,
        explanation=TEXT,
        plan=array(
            obj(
                "step status",
                False,
                step=TEXT,
                status=one_of("pending", "in_progress", "completed"),
            ),
            minItems=1,
            maxItems=12,
        ),
    ),
    "task": obj(
        "description prompt subagent_type",
        False,
        description=TEXT,
        prompt=TEXT,
        subagent_type=one_of("general", "reviewer", "explorer"),
    ),
    "notebook_edit": obj(
        "notebook_path new_source",
        False,
        notebook_path=TEXT,
        cell_id=TEXT,
        new_source=TEXT,
        cell_type=one_of("code", "markdown"),
        edit_mode=one_of("replace", "insert", "delete"),
    ),
    "web_search": obj(
        "query",
        False,
        query=string(minLength=2),
        allowed_domains=array({"type": "string", "format": "hostname"}),
        blocked_domains=array({"type": "string", "format": "hostname"}),
    ),
    "ask_user": obj(
        "questions",
        False,
        questions=array(
            obj(
                "question header options multiSelect",
                False,
                question=TEXT,
                header=string(maxLength=12),
                options=array(
                    obj("label description", False, label=TEXT, description=TEXT),
                    minItems=2,
                    maxItems=4,
                ),
                multiSelect=BOOL,
            ),
            minItems=1,
            maxItems=4,
        ),
    ),
    "str_replace_editor": obj(
        "command path",
        command=one_of("view", "create", "str_replace", "insert", "undo_edit"),
        path=TEXT,
        file_text=TEXT,
        insert_line=INT,
        view_range=array(INT, minItems=2, maxItems=2),
    ),
    "no_parameters": obj(closed=False),
    "anything": {"type": "object", "additionalProperties": True},
    # ---- MCP servers
    "git_commit": obj("repo_path message", repo_path=string(title="Repo Path"), message=string(title="Message")),
    "git_log": {
        "title": "GitLog",
        **obj(
            "repo_path",
            repo_path=string(title="Repo Path"),
            max_count={**INT, "default": 10, "title": "Max Count"},
            start_timestamp=or_null(string(pattern="^\\d{4}-\\d{2}-\\d{2}$")),
        ),
    },
    "fetch": {
        "title": "Fetch",
        **obj(
            "url",
            url=string(pattern="^https?://", minLength=1, title="Url"),
            max_length={
                **INT,
                "exclusiveMinimum": 0,
                "exclusiveMaximum": 1000000,
                "default": 5000,
            },
            start_index={**INT, "minimum": 0, "default": 0},
            raw={**BOOL, "default": False},
        ),
    },
    "create_entities": obj(
        "entities",
        entities=array(obj("name entityType observations", name=TEXT, entityType=TEXT, observations=array(TEXT))),
    ),
    "sequential_thinking": obj(
        "thought nextThoughtNeeded thoughtNumber totalThoughts",
        thought=TEXT,
        nextThoughtNeeded=BOOL,
        thoughtNumber={**INT, "minimum": 1},
        totalThoughts={**INT, "minimum": 1},
        isRevision=BOOL,
        branchId=TEXT,
    ),
    "create_issue": {
        **DRAFT7,
        **obj(
            "owner repo title",
            False,
            owner=string(pattern="^[A-Za-z0-9-]{1,39}$"),
            repo=TEXT,
            title=string(maxLength=256),
            body=TEXT,
            labels=array(TEXT, maxItems=10),
            assignees=array(TEXT),
            milestone={**NUMBER, "minimum": 1},
        ),
    },
    "create_review": obj(
        "owner repo pull_number event",
        False,
        owner=TEXT,
        repo=TEXT,
        pull_number=INT,
        body=TEXT,
        event=one_of("APPROVE", "REQUEST_CHANGES", "COMMENT"),
        comments=array(
            {
                "anyOf": [
                    obj("path position body", False, path=TEXT, position=INT, body=TEXT),
                    obj("path line body", False, path=TEXT, line=INT, body=TEXT),
                ]
            }
        ),
    ),
    "query_database": obj(
        "sql",
        False,
        sql=TEXT,
        params=array({"type": ["string", "number", "boolean", "null"]}),
        row_limit={**INT, "minimum": 1, "maximum": 10000, "multipleOf": 10},
    ),
    "browser_click": obj(
        "x y",
        False,
        x={**NUMBER, "minimum": 0, "maximum": 1920},
        y={**NUMBER, "minimum": 0, "maximum": 1080},
        button=one_of("left", "right", "middle", default="left"),
        modifiers=array(one_of("Alt", "Control", "Shift"), maxItems=3),
    ),
    "computer_action": {
        "oneOf": [
            obj("type x y", False, type={"const": "click"}, x=INT, y=INT),
            obj("type text", False, type={"const": "type"}, text=TEXT),
            obj("type keys", False, type={"const": "keypress"}, keys=array(TEXT, minItems=1)),
            obj("type", False, type={"const": "screenshot"}),
            obj(
                "type path",
                False,
                type={"const": "drag"},
                path=array(obj("x y", False, x=INT, y=INT), minItems=2),
            ),
        ]
    },
    "calendar_event": {
        "$defs": {
            "Attendee": {
                "title": "Attendee",
                **obj(
                    "email",
                    email=string(format="email"),
                    optional={**BOOL, "default": False},
                ),
            }
        },
        **obj(
            "summary start end",
            summary=TEXT,
            start=string(format="date-time"),
            end=string(format="date-time"),
            attendees=array({"$ref": "#/$defs/Attendee"}, default=[]),
            reminder_minutes=or_null({**INT, "minimum": 0, "maximum": 40320}),
        ),
    },
    "book_flight": obj(
        "origin destination date passengers",
        False,
        origin=string(pattern="^[A-Z]{3}$"),
        destination=string(pattern="^[A-Z]{3}$"),
        date=string(format="date"),
        passengers={**INT, "minimum": 1, "maximum": 9},
        cabin=one_of("economy", "premium", "business", "first"),
        max_price=or_null({**NUMBER, "exclusiveMinimum": 0}),
    ),
    "get_weather": obj(
        "location unit",
        False,
        location=string("City and country"),
        unit={"type": ["string", "null"], "enum": ["celsius", "fahrenheit", None]},
    ),
    "send_email": obj(
        "to subject body",
        False,
        to=array(string(format="email"), minItems=1, maxItems=20),
        cc=or_null(array(string(format="email"))),
        subject=string(maxLength=200),
        body=TEXT,
        priority={"enum": [1, 2, 3]},
    ),
    "http_request": obj(
        "method url",
        False,
        method=one_of("GET", "POST", "PUT", "PATCH", "DELETE"),
        url=string(pattern="^https?://[^\\s]+$"),
        headers={"type": "object", "additionalProperties": {"type": "string"}},
        body={"type": ["string", "object", "null"]},
    ),
    "kubectl_apply": obj(
        "kind metadata",
        True,
        kind=one_of("Pod", "Deployment", "Service"),
        metadata=obj(
            "name",
            name=string(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength=63),
            labels={"type": "object", "additionalProperties": {"type": "string"}},
        ),
        spec={"type": "object"},
    ),
    "firewall_rule": obj(
        "source port",
        False,
        source={"anyOf": [string(format="ipv4"), string(format="ipv6"), {"const": "any"}]},
        port={"anyOf": [{**INT, "minimum": 1, "maximum": 65535}, {"type": "null"}]},
        id=string(format="uuid"),
        ttl=string(format="duration"),
        at=string(format="time"),
    ),
    # ---- Answers in a form
    "extraction": {
        "$defs": {
            "Person": obj("name age", False, name=TEXT, age=or_null({**INT, "minimum": 0, "maximum": 150})),
            "Role": one_of("author", "editor", "reviewer"),
        },
        **obj(
            "people summary confidence",
            False,
            people=array(
                obj(
                    "person role",
                    False,
                    person={"$ref": "#/$defs/Person"},
                    role={"allOf": [{"$ref": "#/$defs/Role"}], "default": "author"},
                ),
                maxItems=5,
            ),
            summary=string(minLength=10, maxLength=300),
            confidence={**NUMBER, "minimum": 0, "maximum": 1},
        ),
    },
    "ui_tree": {
        "$defs": {
            "node": obj(
                "type label children",
                False,
                type=one_of("div", "button", "header", "section", "field", "form"),
                label=TEXT,
                children=array({"$ref": "#/$defs/node"}),
            )
        },
        "$ref": "#/$defs/node",
    },
    "math_steps": obj(
        "steps final_answer",
        False,
        steps=array(obj("explanation output", False, explanation=TEXT, output=TEXT), maxItems=6),
        final_answer=TEXT,
    ),
    "linked_list": obj(
        "value next",
        False,
        value=NUMBER,
        next={"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    ),
    "filter_expression": {
        "definitions": {
            "expr": {
                "anyOf": [
                    obj(
                        "op args",
                        False,
                        op=one_of("and", "or"),
                        args=array({"$ref": "#/definitions/expr"}, minItems=1, maxItems=3),
                    ),
                    obj(
                        "field cmp value",
                        False,
                        field=TEXT,
                        cmp=one_of("=", "<", ">", "in"),
                        value={"type": ["string", "number", "boolean"]},
                    ),
                ]
            }
        },
        "$ref": "#/definitions/expr",
    },
    "geojson_point": obj(
        "type coordinates",
        False,
        type={"const": "Point"},
        coordinates={
            "type": "array",
            "prefixItems": [
                {**NUMBER, "minimum": -180, "maximum": 180},
                {**NUMBER, "minimum": -90, "maximum": 90},
            ],
            "items": False,
            "minItems": 2,
        },
    ),
    "version": obj(
        "semver",
        False,
        semver=string(pattern="^(0|[1-9]\\d*)\\.(0|[1-9]\\d*)\\.(0|[1-9]\\d*)$"),
        channel={"enum": ["stable", "beta", None]},
        released={**BOOL, "nullable": True},
    ),
    "classification": one_of("positive", "negative", "neutral"),
    "unicode_names": obj(
        "größe 名前",
        False,
        **{"größe": {"enum": ["klein", "groß", "☃"]}, "名前": string(maxLength=8)},
    ),
}
