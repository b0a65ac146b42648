"""What requests carry: each field of each body of each wire with values of other types, and bodies that cost much."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel.plugins.mcp.schemas import plain_schema
from sandbox_kernel.plugins.serve.bodies import Body, Query, RequestModel
from sandbox_kernel.plugins.serve.e2b import bodies as e2b
from sandbox_kernel.plugins.serve.jupyter.rest import NewKernel
from sandbox_kernel.plugins.serve.librechat import bodies as librechat
from sandbox_kernel.plugins.serve.open_terminal import bodies as open_terminal
from sandbox_kernel.plugins.serve.requests import Refusal, object_of
from tests.support.cases import each


def kinds(above: type[RequestModel]) -> Iterator[type[RequestModel]]:
    for kind in above.__subclasses__():
        yield kind
        yield from kinds(kind)


BODIES = [kind for kind in dict.fromkeys(kinds(Body)) if kind.__module__.startswith("sandbox_kernel.")]
VALUES: dict[str, Any] = {
    "string": "a",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
}
ALSO = {"number": {"integer"}}
"""Types of values that a field of another type takes."""


def of_type(schema: dict[str, Any]) -> Any:
    """Return a value that a schema takes, as far as ours have them."""
    match schema.get("type"):
        case "object":
            return {name: of_type(schema["properties"][name]) for name in schema.get("required", ())}
        case "array":
            return [of_type(schema["items"])] * schema.get("minItems", 0)
        case "string":
            return schema.get("enum", ["a" * schema.get("minLength", 0)])[0]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case kind:
            return {"boolean": False}.get(str(kind))


FIELDS = [
    (kind, name, field)
    for kind in BODIES
    for name, field in plain_schema(kind)["properties"].items()
    if field.get("type") in VALUES
]


def test_the_bodies_of_all_wires_are_here() -> None:
    assert {kind.__module__.split(".")[3] for kind in BODIES} == {"e2b", "jupyter", "librechat", "open_terminal"}
    assert len(FIELDS) > 60


@each(("kind", "name", "field"), FIELDS)
def test_a_field_of_another_type_is_refused_and_a_null_is_none(
    kind: type[Body], name: str, field: dict[str, Any]
) -> None:
    schema = plain_schema(kind)
    whole = {one: of_type(schema["properties"][one]) for one in schema.get("required", ())}
    if field.get("format") != "binary":
        for other in VALUES.keys() - {field["type"]} - ALSO.get(field["type"], set()):
            with pytest.raises(Refusal) as refused:
                kind.of({**whole, name: VALUES[other]})
            assert refused.value.status == 400, other
    if name not in whole:
        assert kind.of({**whole, name: None}) == kind.of(whole)  # the control
    else:
        with pytest.raises(Refusal):
            kind.of({**whole, name: None})
        kind.of(whole)  # the control


def many(value: object) -> dict[str, object]:
    return {str(number): value for number in range(200_000)}


@pytest.mark.slow
@each(
    ("kind", "fields"),
    [
        (e2b.NewSandbox, {"metadata": many(7)}),
        (e2b.NewSandbox, {"network": {"allowOut": [7] * 1_000_000}}),
        (e2b.Start, {"process": {"cmd": "a", "args": [7] * 1_000_000}}),
        (e2b.ExecuteRequest, {"code": "1", "env_vars": many(7)}),
        (librechat.RunBody, {"lang": "py", "code": "1", "args": [7] * 1_000_000}),
        (librechat.RunBody, {"lang": "py", "code": "1", "files": [7] * 1_000_000}),
        (librechat.RunProgram, {"code": "1", "tools": [{}] * 1_000_000}),
        (open_terminal.Replace, {"path": "a", "replacements": [{}] * 1_000_000}),
        (open_terminal.ArchiveBody, {"paths": [7] * 1_000_000}),
        (open_terminal.CommandBody, {"command": "a", "env": many(7)}),
    ],
    ids=lambda _: None,
)
def test_of_a_million_mistakes_one_is_looked_for(kind: type[Body], fields: dict[str, Any]) -> None:
    began = time.process_time()
    with pytest.raises(Refusal) as refused:
        kind.of(fields)
    assert time.process_time() - began < 0.2
    assert len(str(refused.value)) < 400


@each("seconds", [-1, True, "9", float("nan"), float("inf"), 10**400, [9], {}])
def test_seconds_are_a_number_that_can_be(seconds: object) -> None:
    for kind, name in ((e2b.NewSandbox, "timeout"), (e2b.Stay, "duration"), (librechat.RunProgram, "timeout")):
        with pytest.raises(Refusal):
            kind.of({name: seconds})
        assert kind.of({name: 9})  # the control


def test_what_a_jupyter_server_says_of_itself_is_noted() -> None:
    assert NewKernel.of({"env": {}}).env is not None
    assert NewKernel.of({"name": "x"}).env is None


def test_an_address_takes_text_for_what_it_means() -> None:
    assert issubclass(open_terminal.Grep, Query)
    found = open_terminal.Grep.of({"query": "a", "regex": "false", "max_results": "7", "include": ["*.py"]})
    assert (found.regex, found.max_results, found.include) == (False, 7, ["*.py"])


@pytest.mark.parametrize(("levels", "there"), [(150, True), (250, True), (252, False), (1000, False)])
def test_an_object_that_no_answer_can_have_is_none(levels: int, there: bool) -> None:
    found = object_of(b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}")
    assert (found is not None) == there
    assert object_of(b'{"a":[' + b"[]," * 1000 + b"[]]}") is not None, "many lists are not deep"
