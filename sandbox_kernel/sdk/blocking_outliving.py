"""What there is of a sandbox beyond its caller, without `await`; see `outliving`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from .client import AsyncSandbox
from .execution import Execution, ExecutionError, Result
from .said import OutputMessage

if TYPE_CHECKING:
    from .keeping import Missed


class Outliving:
    """The part of `Sandbox` that may go on without it."""

    _inner: AsyncSandbox

    def _end(self, how: Callable[[AsyncSandbox], Coroutine[Any, Any, object]]) -> bool:
        raise NotImplementedError

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError

    def detach(self) -> None:
        """Let go of a detached sandbox, which goes on; see `AsyncSandbox.detach`."""
        if not self._inner.is_detached:
            raise ConfigurationError(UsageCode.NOT_DETACHED)
        self._end(AsyncSandbox.detach)

    def release(self) -> None:
        """Leave it if it is detached, else end it."""
        self._end(AsyncSandbox.release)

    def rejoin(
        self,
        *,
        on_stdout: Callable[[OutputMessage], object] | None = None,
        on_stderr: Callable[[OutputMessage], object] | None = None,
        on_result: Callable[[Result], object] | None = None,
        on_error: Callable[[ExecutionError], object] | None = None,
    ) -> Execution | None:
        """Return what the cell of the owner before brings; see `AsyncSandbox.rejoin`.

        Callbacks are called on the loop's thread: they must not use the sandbox.
        """
        told = {"on_stdout": on_stdout, "on_stderr": on_stderr, "on_result": on_result, "on_error": on_error}
        found: Execution | None = self._call(self._inner.rejoin(**told))  # type: ignore[arg-type]
        return found

    @property
    def missed(self) -> Missed:
        """What of that cell nobody kept."""
        return self._inner.missed
