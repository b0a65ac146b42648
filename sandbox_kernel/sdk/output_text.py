"""Text that is more than text: what a cell printed, with its time, and JSON that can be read by its keys.

Both are `str`, so whoever wants text has it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any, ClassVar


class OutputMessage(str):
    """A piece of what a cell printed, for `on_stdout` and `on_stderr`: the text itself, with where and when."""

    __slots__ = ("error", "timestamp")
    error: bool
    """Whether it was printed on stderr."""
    timestamp: int
    """When the host got it, in nanoseconds since 1970."""

    @classmethod
    def of(cls, text: str, *, error: bool) -> OutputMessage:
        message = cls(text)
        message.error, message.timestamp = error, time.time_ns()
        return message

    @property
    def line(self) -> str:
        """The text. It is what came at once: a part of a line, one line, or many."""
        return str(self)

    def __repr__(self) -> str:
        return f"OutputMessage({str.__repr__(self)}, error={self.error})"


class JsonText(str):
    """JSON as text. What it holds is also found by key: `execution.to_json()["text"]`."""

    __slots__ = ()

    @classmethod
    def of(cls, value: object) -> JsonText:
        return cls(json.dumps(value))

    def __getitem__(self, key: Any) -> Any:
        """Return the value of a key, or what any text has at an index."""
        return json.loads(self)[key] if isinstance(key, str) else str.__getitem__(self, key)


class InJson:
    """A dataclass that can be had as JSON."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return asdict(self)

    def to_json(self) -> JsonText:
        """Return it as JSON."""
        return JsonText.of(self.to_dict())
