"""Open Terminal's wire: the page from which Open WebUI makes the tools of its models."""

from __future__ import annotations

from typing import Any

_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "number": {"type": "integer"},
    "seconds": {"type": "number", "minimum": 0, "maximum": 300},
    "flag": {"type": "boolean"},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "chunks": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["target", "replacement"],
            "properties": {
                "target": {"type": "string", "description": "The exact text to find, with its spaces."},
                "replacement": {"type": "string", "description": "What stands there instead."},
                "start_line": {"type": "integer", "minimum": 1, "description": "Only from this line on (1 is first)."},
                "end_line": {"type": "integer", "minimum": 1, "description": "Only up to this line."},
                "allow_multiple": {"type": "boolean", "default": False, "description": "Replace all that are found."},
            },
        },
    },
    "kind": {"type": "string", "pattern": "^(file|directory|any)$", "default": "any"},
}
_PATH = ("path", "text", "A path in /home/user, absolute or relative to the current folder.")
_WHERE = ("path", "text", "The folder to look in; the current folder if it is not given.")
_HIDDEN = ("show_hidden", "flag", "Whether hidden files count.")
_TAIL = ("tail", "number", "Only so many pieces of the output, the last.")
_WAIT = ("wait", "seconds", "Wait so many seconds for its end; without it, the answer comes at once.")

Given = tuple[str, str, str]
_OPERATIONS: tuple[tuple[str, str, str, str, tuple[Given, ...], tuple[Given, ...], tuple[str, ...]], ...] = (
    (
        "get",
        "/files/list",
        "list_files",
        "List a folder.",
        (("directory", "text", "The folder; the current one if it is not given."),),
        (),
        (),
    ),
    (
        "get",
        "/files/read",
        "read_file",
        "Read a text file, or look at an image. Use display_file to show a file to the user.",
        (_PATH, ("start_line", "number", "The first line, from 1."), ("end_line", "number", "The last line.")),
        (),
        ("path",),
    ),
    ("get", "/files/display", "display_file", "Show a file to the user. It is not returned.", (_PATH,), (), ("path",)),
    (
        "post",
        "/files/write",
        "write_file",
        "Write a text file, with the folders above it. A file there is replaced.",
        (),
        (_PATH, ("content", "text", "The whole text.")),
        ("path", "content"),
    ),
    (
        "post",
        "/files/replace",
        "replace_file_content",
        "Replace exact texts in a file.",
        (),
        (_PATH, ("replacements", "chunks", "What is replaced by what, one after another.")),
        ("path", "replacements"),
    ),
    (
        "get",
        "/files/grep",
        "grep_search",
        "Look for lines in the text files of a folder, or of one file.",
        (
            ("query", "text", "A regular expression, or a text if regex is false."),
            _WHERE,
            ("regex", "flag", "Whether the query is a regular expression; it is if this is not given."),
            ("case_insensitive", "flag", "Whether capitals do not matter."),
            ("include", "texts", "Only files whose names fit one of these patterns, such as *.py."),
            ("match_per_line", "flag", "False returns the files alone, without their lines."),
            ("max_results", "number", "At most so many, up to 500."),
        ),
        (),
        ("query",),
    ),
    (
        "get",
        "/files/matches",
        "match_files",
        "Look for a text in names and contents of files, the best first.",
        (
            ("query", "text", "The text."),
            _WHERE,
            _HIDDEN,
            ("offset", "number", "Leave out so many."),
            ("limit", "number", "At most so many, up to 100."),
        ),
        (),
        ("query",),
    ),
    (
        "get",
        "/files/search",
        "search_files",
        "Look for files and folders by a part of their names, the best first.",
        (
            ("query", "text", "A part of the name."),
            _WHERE,
            ("limit", "number", "At most so many, up to 100."),
            ("type", "kind", "file, directory or any."),
            _HIDDEN,
        ),
        (),
        (),
    ),
    (
        "get",
        "/files/glob",
        "glob_search",
        "Look for files and folders whose names or paths fit a pattern.",
        (
            ("pattern", "text", "The pattern, such as *.py."),
            _WHERE,
            ("exclude", "texts", "Leave out what fits one of these patterns."),
            ("type", "kind", "file, directory or any."),
            ("max_results", "number", "At most so many, up to 500."),
        ),
        (),
        ("pattern",),
    ),
    ("get", "/execute", "list_processes", "List the commands that run, and those that have just ended.", (), (), ()),
    (
        "post",
        "/execute",
        "run_command",
        "Run a command of bash in a sandbox, which has Python. Its answer has an id, by which get_process_status finds "
        "the rest of its output.",
        (_WAIT, _TAIL),
        (
            ("command", "text", "The command; pipes, && and redirections work."),
            ("cwd", "text", "The folder it runs in; the current folder if it is not given."),
            ("env", "map", "Variables of its environment."),
        ),
        ("command",),
    ),
    (
        "get",
        "/execute/{process_id}/status",
        "get_process_status",
        "Return the output of a command, and whether it runs.",
        (_WAIT, ("offset", "number", "Leave out so many pieces: the next_offset of the last answer."), _TAIL),
        (),
        (),
    ),
    (
        "post",
        "/execute/{process_id}/input",
        "send_process_input",
        "Write to the stdin of a command.",
        (),
        (("input", "text", "The text, with a newline at its end if that is wanted."),),
        ("input",),
    ),
    (
        "delete",
        "/execute/{process_id}",
        "kill_process",
        "End a command at once.",
        (("force", "flag", "Has no effect: a command is ended at once in any case."),),
        (),
        (),
    ),
    (
        "get",
        "/api/terminals/user/output",
        "read_user_terminal",
        "Return what the shell that the user has open showed last. Read it before something is typed into it.",
        (),
        (),
        (),
    ),
    (
        "post",
        "/api/terminals/user/input",
        "send_user_terminal_input",
        "Type into the shell that the user has open. It does not wait for what comes of it.",
        (),
        (("input", "text", "What is typed, with newlines as they are."),),
        ("input",),
    ),
)


def _operation(path: str, name: str, words: str, query: tuple[Given, ...], *rest: Any) -> dict[str, Any]:
    body, required = rest
    parameters = [
        {"name": one, "in": "query", "required": one in required, "description": about, "schema": _KINDS[kind]}
        for one, kind, about in query
    ]
    if "{process_id}" in path:
        about = "The id of the command."
        row = {"name": "process_id", "in": "path", "required": True, "description": about, "schema": _KINDS["text"]}
        parameters.insert(0, row)
    summary = name.replace("_", " ").capitalize()
    found: dict[str, Any] = {"operationId": name, "summary": summary, "description": words}
    if parameters:
        found["parameters"] = parameters
    if body:
        properties = {one: {**_KINDS[kind], "description": about} for one, kind, about in body}
        schema = {"type": "object", "required": list(required), "properties": properties}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    found["responses"] = {"200": {"description": "Done", "content": {"application/json": {"schema": {}}}}}
    found["security"] = [{"HTTPBearer": []}]
    return found


def page(version: str) -> dict[str, Any]:
    """Return the page."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path, name, words, query, body, required in _OPERATIONS:
        paths.setdefault(path, {})[method] = _operation(path, name, words, query, body, required)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Open Terminal", "description": "A sandbox for each user.", "version": version},
        "paths": paths,
        "components": {"securitySchemes": {"HTTPBearer": {"type": "http", "scheme": "bearer"}}},
    }
