"""Commands without `await` are those with it: what `make blocking` writes is up to date, and nothing is left out."""

from __future__ import annotations

from sandbox_kernel.plugins.commands import commands
from tests.support import blocking_sdk

MODULE = "sandbox_kernel.plugins.commands.blocking_commands"


def test_what_is_generated_is_up_to_date() -> None:
    blocking_sdk.check_is_up_to_date(MODULE)


def test_each_public_method_has_its_blocking_form() -> None:
    blocking_sdk.check_is_whole(MODULE)


def test_a_change_of_a_signature_shows() -> None:
    class AsyncPty(commands.AsyncPty):
        async def kill(self, pid: int, signal: int) -> bool:  # type: ignore[override]
            """End a shell."""
            return signal > pid

    text = blocking_sdk.generated(MODULE, (AsyncPty,))
    assert "def kill(self, pid: int, signal: int) -> bool:" in text
    assert "return self._call(self._inner.kill, pid, signal)" in text
