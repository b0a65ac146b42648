"""What a caller lets its cells call: functions, described by their signatures, and the limits of their calls.

Values only; `tool_calls` serves the calls. What cannot be offered is refused here, before there is a sandbox.
"""

from __future__ import annotations

import builtins
import inspect
import json
import keyword
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import ConfigurationError
from ...core.model import MIB, SERVICE_PORT
from ...core.package_files import PACKAGE
from ...engines.shipping import module_line
from .codes import ToolCode
from .tool_types import Check, MismatchError, UnfitTypeError, checker, shown


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, as it is shown to cells."""

    name: str
    type: str = ""
    optional: bool = False
    default: Any = inspect.Parameter.empty
    """A value of JSON; it is shown, and never sent."""
    kind: str = "POSITIONAL_OR_KEYWORD"


def shown_annotation(annotation: Any) -> str:
    return "" if annotation is inspect.Parameter.empty else shown(annotation)


def parameter_of(one: inspect.Parameter) -> Parameter:
    optional = one.default is not inspect.Parameter.empty
    default = one.default
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        default = inspect.Parameter.empty  # it has one, which is the host's affair
    return Parameter(one.name, shown_annotation(one.annotation), optional, default, one.kind.name)


_JSON_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


def of_schema(name: str, described: Any, *, optional: bool) -> Parameter:
    described = described if isinstance(described, Mapping) else {}
    kinds = described.get("type", [one.get("type") for one in described.get("anyOf", []) if isinstance(one, Mapping)])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    text = " | ".join(_JSON_TYPES[one] for one in kinds if isinstance(one, str) and one in _JSON_TYPES)
    default = described.get("default", inspect.Parameter.empty) if optional else inspect.Parameter.empty
    return Parameter(name, text, optional, default)


MODULE = "sandbox_tools"
"""What cells import a caller's tools from."""
MAX_TOOLS = 256
MAX_NAME = 64
MAX_DOCUMENTATION = 8192
"""Characters of one tool's."""
MAX_LINE = 96_000
"""Bytes of the line that makes the module: a request to a broker has it, and has 192 KiB at most."""
MAX_AT_ONCE = 64
_RESERVED = frozenset({"ToolError"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_BOUND = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

Work = Callable[[Mapping[str, Any]], Awaitable[Any] | Any]
"""Does a call, with its arguments by name."""
Arguments = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Checks arguments, and returns them as the tool takes them. Raises `MismatchError`."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One function of the caller's. `Tool.of(function)` makes it of a signature, `Tool.described` of a JSON schema."""

    name: str
    documentation: str
    parameters: tuple[Parameter, ...]
    returns: str
    work: Work
    arguments: Arguments
    result: Check | None = None
    is_async: bool = False
    """Whether cells await it."""
    in_thread: bool = False
    """Whether it blocks."""
    seconds: float | None = None
    """Its time limit; None is that of all."""
    stops_clock: bool = False
    """Whether the time that the host works on a call is none of the cell's `cell_timeout`."""

    @property
    def signature(self) -> str:
        """For people and models: `search(query: str, limit: int = ...)`."""
        words = [f"{one.name}: {one.type or 'Any'}{' = ...' if one.optional else ''}" for one in self.parameters]
        return f"{self.name}({', '.join(words)})"

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        seconds: float | None = None,
        stops_clock: bool = False,
    ) -> Tool:
        """Return the tool that a function is. One without `async` runs in a thread.

        Each parameter and what it returns are of types that JSON has: text, numbers, lists, dictionaries, Literal,
        unions of these, TypedDict, dataclasses and models of pydantic. What has no type takes any JSON.

        Args:
            function: What a call calls, with arguments by name.
            name: Its name in cells. None is that of the function.
            seconds: The time limit of one call. None is that of all tools.
            stops_clock: Whether the time that the host works on a call is none of the cell's `cell_timeout`.

        Raises:
            ConfigurationError: It cannot be offered: a type that JSON has not, `*args`, an improper name.
        """
        name = str(name or getattr(function, "__name__", ""))
        _check_name(name)
        of_object = getattr(type(function), "__call__", None)  # noqa: B004 (whether it is async)
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(of_object)
        try:
            signature = inspect.signature(function, eval_str=True)
        except (TypeError, ValueError, NameError, SyntaxError, AttributeError) as error:
            raise unfit(name, f"its signature cannot be read: {error}") from None
        checks: dict[str, Check] = {}
        for one in signature.parameters.values():
            if one.kind not in _BOUND:
                raise unfit(name, f"{one} has no fixed number of arguments")
            checks[one.name] = _checker(name, f"its parameter {one.name}", one.annotation)
        return cls(
            name=name,
            documentation=inspect.getdoc(function) or "",
            parameters=tuple(parameter_of(one) for one in signature.parameters.values()),
            returns=shown_annotation(signature.return_annotation),
            work=lambda given: function(*(bound := _bound(signature, given)).args, **bound.kwargs),
            arguments=lambda given: _checked(signature, checks, given),
            result=_checker(name, "what it returns", signature.return_annotation),
            is_async=is_async,
            in_thread=not is_async,
            seconds=seconds,
            stops_clock=stops_clock,
        )

    @classmethod
    def described(
        cls,
        name: str,
        documentation: str,
        schema: Mapping[str, Any],
        work: Work,
        *,
        arguments: Arguments | None = None,
        returns: str = "",
        in_thread: bool = False,
        seconds: float | None = None,
        stops_clock: bool = False,
    ) -> Tool:
        """Return a tool of another framework, by the JSON schema of its arguments. Cells call it without `await`.

        `arguments` checks them as that framework does; the names are checked here in any case.
        """
        _check_name(name)
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        needed = schema.get("required")
        needed = set(needed) if isinstance(needed, list) else set()
        parameters = []
        for key in sorted(properties, key=lambda key: key not in needed):
            if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key):
                raise unfit(name, f"its parameter {str(key)[:MAX_NAME]!r} is no name of Python")
            parameters.append(of_schema(key, properties[key], optional=key not in needed))
        known = frozenset(one.name for one in parameters)
        required = frozenset(one.name for one in parameters if not one.optional)

        def named(given: Mapping[str, Any]) -> Mapping[str, Any]:
            _check_names(given, known, required)
            return given if arguments is None else arguments(given)

        return cls(
            name=name,
            documentation=documentation[:MAX_DOCUMENTATION],
            parameters=tuple(parameters),
            returns=returns,
            work=work,
            arguments=named,
            in_thread=in_thread,
            seconds=seconds,
            stops_clock=stops_clock,
        )


class Tools(Sequence[Tool]):
    """The tools of a sandbox, and the limits of their calls."""

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]],
        *,
        seconds: float = 30.0,
        calls: int = 1000,
        at_once: int = 8,
        limit_bytes: int = MIB,
    ) -> None:
        """Check the tools.

        Args:
            tools: Functions, or tools that are described already.
            seconds: The time limit of one call.
            calls: How many calls a cell may make.
            at_once: How many calls may run at the same time, 64 at most.
            limit_bytes: Bytes of the arguments of a call, and of its result, as JSON.

        Raises:
            ConfigurationError: One of them cannot be offered.
        """
        found: dict[str, Tool] = {}
        for one in tools:
            if not isinstance(one, Tool) and not callable(one):
                raise unfit("", f"a tool is a function or a Tool, and not {type(one).__name__}")
            tool = one if isinstance(one, Tool) else Tool.of(one)
            if tool.name in found:
                raise unfit(tool.name, "there is another one of that name")
            found[tool.name] = tool
        for name, value, least in (("seconds", seconds, 0.001), ("calls", calls, 1), ("limit_bytes", limit_bytes, 64)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1 << 31:
                raise unfit("", f"{name} is a number of at least {least:g}")
        if isinstance(at_once, bool) or not isinstance(at_once, int) or not 0 < at_once <= MAX_AT_ONCE:
            raise unfit("", f"at_once is a number from 1 to {MAX_AT_ONCE}")
        if len(found) > MAX_TOOLS:
            raise unfit("", f"there are {len(found)} of them, and may be {MAX_TOOLS}")
        self.by_name: Mapping[str, Tool] = found
        self.seconds, self.calls, self.at_once, self.limit_bytes = float(seconds), int(calls), at_once, int(limit_bytes)
        self._all = tuple(found.values())
        self.line = self.line_of(MODULE)

    @classmethod
    def given(cls, tools: object) -> Tools:
        """Return what a caller gives as tools. Raises `ConfigurationError`."""
        if isinstance(tools, Tools):
            return tools
        source = getattr(tools, "as_tools", None)
        if callable(source):
            return cls.given(source())
        if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
            raise unfit("", f"tools is a list of functions, and not {type(tools).__name__}")
        return cls(tools)

    def line_of(self, module: str) -> str:
        """Return one line of Python that makes a module of them in a kernel.

        Raises `ConfigurationError` if it is too long.
        """
        return _line(self, module)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._all)

    def __getitem__(self, at: Any) -> Any:
        return self._all[at]


def preamble(module: str) -> bytes:
    """Return the first bytes of connections for the tools of a module; no request to a proxy begins so."""
    return b"\0%b\n" % module.encode()


def unfit(name: str, why: str) -> ConfigurationError:
    """Return the error of a tool that cannot be offered."""
    whose = f"the tool {name[:MAX_NAME]} cannot be offered" if name else "the tools cannot be offered"
    return ConfigurationError(ToolCode.TOOL_UNFIT, f"{whose}: {why}", setting="tools")


def proper_name(text: str) -> str:
    """Return a name of Python for a tool of another framework, whose names may have dashes and dots."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)[:MAX_NAME].lstrip("_0123456789")
    return f"{name}_" if keyword.iskeyword(name) else name


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > MAX_NAME:
        raise unfit(str(name), f"its name is no plain name of Python of {MAX_NAME} letters at most")
    if name in _RESERVED:
        raise unfit(name, "that name is taken")


def _checker(name: str, what: str, annotation: Any) -> Check:
    if annotation is inspect.Parameter.empty:
        annotation = Any
    try:
        return checker(annotation)
    except (UnfitTypeError, NameError, TypeError) as error:
        raise unfit(name, f"{what}: {error}") from None


def _check_names(given: Mapping[str, Any], known: frozenset[str], needed: frozenset[str]) -> None:
    if unknown := given.keys() - known:
        raise MismatchError(f"there is no parameter {min(unknown)[:MAX_NAME]!r}")
    if missing := needed - given.keys():
        raise MismatchError(f"{', '.join(sorted(missing))} must be given")


def _checked(signature: inspect.Signature, checks: Mapping[str, Check], given: Mapping[str, Any]) -> Mapping[str, Any]:
    needed = frozenset(one.name for one in signature.parameters.values() if one.default is inspect.Parameter.empty)
    _check_names(given, frozenset(checks), needed)
    return {name: checks[name](value, name) for name, value in given.items()}


def _bound(signature: inspect.Signature, given: Mapping[str, Any]) -> inspect.BoundArguments:
    bound = inspect.BoundArguments(signature, builtins.dict(given))
    bound.apply_defaults()  # in their order: one that is given by position may stand behind a default
    return bound


def _line(tools: Tools, module: str) -> str:
    """Return one line of Python that makes a module in a kernel. Raises `ConfigurationError` if it is too long."""
    described = []
    for tool in tools:
        if len(tool.documentation) > MAX_DOCUMENTATION:
            raise unfit(tool.name, f"its documentation has more than {MAX_DOCUMENTATION} characters")
        parameters = []
        for one in tool.parameters:
            shown = {"name": one.name, "type": one.type, "optional": one.optional, "kind": one.kind}
            parameters.append(shown | ({} if one.default is inspect.Parameter.empty else {"default": one.default}))
        described.append(
            {
                "name": tool.name,
                "doc": tool.documentation,
                "parameters": parameters,
                "returns": tool.returns,
                "async": tool.is_async,
            }
        )
    text = json.dumps({"tools": described, "limit": tools.limit_bytes, "at_once": tools.at_once})
    source = (PACKAGE / "plugins" / "tools" / "inside" / "sandbox_tools.py").read_text(encoding="utf-8")
    source += f"\ninstall({module!r}, {SERVICE_PORT}, {text!r})\n"
    line = module_line(source, module)
    if len(line) > MAX_LINE:
        raise unfit("", f"their documentation takes {len(line)} bytes, and may take {MAX_LINE}")
    return line
