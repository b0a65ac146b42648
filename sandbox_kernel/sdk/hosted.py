"""The names that hosted interpreters have for our errors, for code that is moved over (docs/e2b.md)."""

from __future__ import annotations

from ..core.errors import CellTimeout, ConfigurationError, FileNotThere, SandboxError

SandboxException = SandboxError
TimeoutException = CellTimeout
InvalidArgumentException = ConfigurationError
NotFoundException = FileNotThere
