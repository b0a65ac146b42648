"""LibreChat's wire: the bodies of its requests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from ....core.codes import Code
from ..bodies import Body, TextList
from ..codes import ServeCode
from .programs import MAX_NAME, MAX_TOOLS

MAX_HINT = 512


def _row(value: Any) -> Any:
    if type(value) is not dict:
        raise ValueError("Input should be an object")
    return value


Row = Annotated[dict[str, Any], PlainValidator(_row), WithJsonSchema({"type": "object"})]
"""An object of any fields, which is not copied."""
Rows = Annotated[list[Row], Field(fail_fast=True, max_length=1000)]


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("Input should be printable")
    return name


class ToolOfClient(Body):
    """A tool of the client's, of which its name counts."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]


class InConversation(Body):
    """What all that runs code has."""

    files: Rows = Field(default=[])
    session_id: str = ""
    runtime_session_hint: Annotated[str, Field(max_length=MAX_HINT)] = ""

    @classmethod
    def code_of(cls, name: str) -> Code:
        return ServeCode.NOT_OFFERED if name == "lang" else super().code_of(name)


class RunBody(InConversation):
    lang: str
    code: str
    args: TextList = Field(default=[])


class RunProgram(InConversation):
    """A program that calls tools, or the results of its calls, with which it goes on."""

    lang: str = "py"
    code: str | None = None
    tools: Annotated[list[ToolOfClient], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    timeout: Annotated[float, Field(ge=0, le=1e9, description="Milliseconds")] | None = None
    continuation_token: Any = None
    tool_results: Any = None
