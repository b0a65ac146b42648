"""What jupyter_client asks for in place of its own provisioner, which starts the command of the kernelspec.

Imports jupyter_client, and what installs kernelspecs: a kernel is started as an installed one of ours would be. The
kernelspec's own command is never started, and there is no other way to a process: what is wrong is raised.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ...config.forms import NAME
from ...config.sources import by_name
from ...core.errors import ConfigurationError
from ...core.kernel_command import is_own
from ...setup.install import check, is_ours, isolation_flags, kernel_spec, values_in

PYTHON = "python"
"""The language of kernelspecs for which our own kernel is started, whatever their names are."""


class SandboxProvisioner(LocalProvisioner):
    """Starts a kernel of ours in place of a kernelspec's own command; all else is as with a local kernel."""

    def __init__(self, *, kernel_id: str, kernel_spec: Any, parent: Any, **settings: object) -> None:
        """Keep what a kernelspec's `metadata.kernel_provisioner.config` says, for the start.

        Args:
            kernel_id: Of jupyter_client's.
            kernel_spec: The manager's own; what the manager reads there becomes what our kernel needs.
            parent: The kernel's manager.
            settings: Of the kernel, by their names.
        """
        super().__init__(kernel_id=kernel_id, kernel_spec=kernel_spec, parent=parent)
        self._manager, self._settings = parent, settings
        self._argv: list[str] = []

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Return what is started. Raises `ConfigurationError` for settings that are wrong: then nothing is."""
        if not self._argv:  # a restart has the same
            if "kernel_provisioner" in self.kernel_spec.metadata and not is_own(self.kernel_spec.argv):
                words = "the kernelspec %s has a command of its own: VS Code and Zed start that, without a sandbox"
                self.log.warning(words, self._manager.kernel_name)
            ours = await asyncio.to_thread(self._ours)
            # The kernel process ignores SIGINT, gets no variable of another program's, and can encrypt.
            self.kernel_spec.interrupt_mode, self.kernel_spec.env = ours["interrupt_mode"], ours["env"]
            able = {"supported_encryption": ours["metadata"]["supported_encryption"]}
            self.kernel_spec.metadata = self.kernel_spec.metadata | able
            self._argv = ours["argv"]
        added = kwargs.get("extra_arguments", [])
        launch = await super().pre_launch(**kwargs)
        connection_file = os.path.realpath(self._manager.connection_file)  # noqa: ASYNC240 (as the manager does)
        command = [connection_file if word == "{connection_file}" else word for word in self._argv]
        return launch | {"cmd": [*command, *added]}

    def _ours(self) -> dict[str, Any]:
        """Return the kernelspec that `sandbox-kernel install` would write."""
        argv, name = self.kernel_spec.argv, self._manager.kernel_name
        try:
            values: dict[str, Any] = {}
            if is_ours(argv):  # it is started with what it says, and not within a second kernel of ours
                values = values_in(argv)
            elif self.kernel_spec.language.lower() != PYTHON:
                values = {"kernel": name}
            if NAME.fullmatch(shown := self.kernel_spec.display_name):
                values = {"display_name": shown} | values  # for `sandbox-kernel ps`
            values = by_name(values | self._settings)
            return kernel_spec(values, check(values), python=sys.executable, isolation=_isolation())
        except ConfigurationError as error:
            words = f"{error.message}, for the kernelspec {name}"
            raise ConfigurationError(
                error.code, words, limit=error.limit, value=error.value, setting=error.setting
            ) from None


@functools.cache
def _isolation() -> list[str]:
    return isolation_flags(sys.executable)
