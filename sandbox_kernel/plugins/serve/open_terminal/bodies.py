"""Open Terminal's wire: what its requests carry, with what the model of a client is told of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ..bodies import Body, Query, TextList, Texts

WAIT_SECONDS = 300.0


Path = Annotated[str, Field(description="A path in /home/user, absolute or relative to the current folder.")]
Where = Annotated[str, Field(description="The folder to look in; the current folder if it is not given.")]
Hidden = Annotated[bool, Field(description="Whether hidden files count.")]
Kind = Annotated[Literal["file", "directory", "any"], Field(description="file, directory or any.")]
Stripped = StringConstraints(strip_whitespace=True)
Line = Annotated[int, Field(ge=1, le=10**9)]
Matches = Annotated[int, Field(ge=1, le=500, description="At most so many, up to 500.")]
Best = Annotated[int, Field(ge=1, le=100, description="At most so many, up to 100.")]


# --- files ---


class PathBody(Body):
    path: Path


class AtPath(Query):
    path: Path


class FolderQuery(Query):
    directory: Annotated[str, Field(description="The folder; the current one if it is not given.")] = "."


class Read(AtPath):
    start_line: Annotated[Line, Field(description="The first line, from 1.")] | None = None
    end_line: Annotated[Line, Field(description="The last line.")] | None = None


class Write(PathBody):
    content: Annotated[str, Field(description="The whole text.")]


class MoveBody(Body):
    source: str
    destination: str


class Chunk(Body):
    target: Annotated[str, Field(min_length=1, description="The exact text to find, with its spaces.")]
    replacement: Annotated[str, Field(description="What stands there instead.")]
    start_line: Annotated[Line, Field(description="Only from this line on (1 is first).")] | None = None
    end_line: Annotated[Line, Field(description="Only up to this line.")] | None = None
    allow_multiple: Annotated[bool, Field(description="Replace all that are found.")] = False


class Replace(PathBody):
    replacements: Annotated[
        list[Chunk],
        Field(max_length=1000, fail_fast=True, description="What is replaced by what, one after another."),
    ]


class Upload(Query):
    directory: str


class ArchiveBody(Body):
    paths: Annotated[TextList, Field(min_length=1, max_length=1000)]


class Grep(Query):
    query: Annotated[str, Field(description="A regular expression, or a text if regex is false.")]
    path: Where = "."
    regex: Annotated[
        bool, Field(description="Whether the query is a regular expression; it is if this is not given.")
    ] = True
    case_insensitive: Annotated[bool, Field(description="Whether capitals do not matter.")] = False
    include: Annotated[
        list[str], Field(description="Only files whose names fit one of these patterns, such as *.py.")
    ] = Field(default=[])
    match_per_line: Annotated[bool, Field(description="False returns the files alone, without their lines.")] = True
    max_results: Matches = 50


class Glob(Query):
    pattern: Annotated[str, Field(description="The pattern, such as *.py.")]
    path: Where = "."
    exclude: Annotated[list[str], Field(description="Leave out what fits one of these patterns.")] = Field(default=[])
    type: Kind = "any"
    max_results: Matches = 50


class Search(Query):
    query: Annotated[str, Field(description="A part of the name."), Stripped] = ""
    path: Where = "."
    limit: Best = 20
    type: Kind = "any"
    show_hidden: Hidden = False


class BestMatches(Query):
    query: Annotated[str, Stripped, Field(min_length=1, description="The text.")]
    path: Where = "."
    show_hidden: Hidden = False
    offset: Annotated[int, Field(ge=0, le=10**6, description="Leave out so many.")] = 0
    limit: Best = 100


# --- commands and shells ---


class Waiting(Query):
    wait: Annotated[
        float,
        Field(
            ge=0,
            le=WAIT_SECONDS,
            description="Wait so many seconds for its end; without it, the answer comes at once.",
        ),
    ] = 0.0
    tail: Annotated[int, Field(ge=1, le=10**6, description="Only so many pieces of the output, the last.")] | None = (
        None
    )


class Status(Waiting):
    offset: Annotated[
        int, Field(ge=0, le=10**9, description="Leave out so many pieces: the next_offset of the last answer.")
    ] = 0


class CommandBody(Body):
    command: Annotated[str, Field(min_length=1, description="The command; pipes, && and redirections work.")]
    cwd: Annotated[str, Field(description="The folder it runs in; the current folder if it is not given.")] = ""
    env: Annotated[Texts, Field(description="Variables of its environment.")] = Field(default={})


class InputBody(Body):
    input: Annotated[str, Field(description="The text, with a newline at its end if that is wanted.")]


class Typed(Body):
    input: Annotated[str, Field(description="What is typed, with newlines as they are.")]


class Kill(Query):
    force: Annotated[bool, Field(description="Has no effect: a command is ended at once in any case.")] = False


# --- notebooks ---


class RunCell(Body):
    cell_index: int
    source: str | None = None
