"""What jupyter_client asks for in place of its own provisioner, which starts the command of the kernelspec.

Imports jupyter_client, and what installs kernelspecs: a kernel is started as an installed one of ours would be. The
kernelspec's own command is never started, and there is no other way to a process: what is wrong is raised.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ...config.forms import NAME
from ...config.sources import by_name
from ...core.errors import ConfigurationError
from ...core.kernel_command import is_own
from ...core.model import Settings
from ...setup.install import check, is_ours, isolation_flags, kernel_spec, values_in
from .forked_process import SERVERS, ForkedProcess

if TYPE_CHECKING:
    from jupyter_client.connect import KernelConnectionInfo

FORKED_WITH = {"cwd", "env", "extra_arguments", "kernel_id", "stderr", "stdout"}
"""Of what `subprocess.Popen` takes, what a fork server's process can have as well."""
PYTHON = "python"
"""The language of kernelspecs for which our own kernel is started, whatever their names are."""


class SandboxProvisioner(LocalProvisioner):
    """Starts a kernel of ours in place of a kernelspec's own command; all else is as with a local kernel.

    Nothing here waits for a thread: in a fork of a process that has started kernels, the event loop has none.
    """

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
            ours = self._ours()
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

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel: from the fork server of this process where there is one, else as a local kernel."""
        with contextlib.ExitStack() as files:
            forked = self._forked(cmd, kwargs, files)
        if forked is None:
            return await super().launch_kernel(cmd, **kwargs)
        self.process = cast("subprocess.Popen[bytes]", forked)
        self.pid = self.pgid = forked.pid
        self.cwd = kwargs.get("cwd") or Path.cwd()
        return self.connection_info

    def _forked(self, cmd: list[str], kwargs: Mapping[str, Any], files: contextlib.ExitStack) -> ForkedProcess | None:
        """Return a process of the fork server; None if there is none, or more was asked than it can do.

        None on macOS, where libraries of the system's own do not work in a fork of a process that has used them.
        """
        if sys.platform != "linux":
            return None
        env, cwd = kwargs.get("env"), str(kwargs.get("cwd") or Path.cwd())
        if env is None or kwargs.keys() - FORKED_WITH or not (is_own(cmd) and Path(cwd).is_dir()):
            return None
        nothing = os.open(os.devnull, os.O_RDWR)
        files.callback(os.close, nothing)
        streams = [nothing]
        for number, name in ((1, "stdout"), (2, "stderr")):
            wanted = kwargs.get(name)
            if wanted is None or wanted == subprocess.DEVNULL:
                streams.append(number if wanted is None else nothing)
            elif hasattr(wanted, "fileno"):
                streams.append(wanted.fileno())
            else:
                return None
        at = cmd.index("sandbox_kernel")
        return SERVERS.fork(
            cmd[: at - 1],
            cmd[at + 1 :],
            env=env | {"JPY_PARENT_PID": str(os.getpid())},
            cwd=cwd,
            streams=streams,
            variables=self.kernel_spec.env,
        )

    def _ours(self) -> dict[str, Any]:
        """Return the kernelspec that `sandbox-kernel install` would write."""
        argv, name = list(self.kernel_spec.argv), self._manager.kernel_name
        own = is_own(argv)
        isolation = argv[1 : argv.index("-m")] if own and argv[0] == sys.executable else _isolation()
        try:
            values: dict[str, Any] = {}
            if is_ours(argv):  # use its own settings, and start no kernel within a kernel
                values = values_in(argv)
            elif self.kernel_spec.language.lower() != PYTHON:
                values = {"kernel": name}
            if NAME.fullmatch(shown := self.kernel_spec.display_name):
                values = {"display_name": shown} | values  # for `sandbox-kernel ps`
            values = by_name(values | self._settings)
            return kernel_spec(values, check(values), python=sys.executable, isolation=isolation)
        except ConfigurationError as error:
            if own and not self._settings:  # this kernel says in each cell what is wrong
                return kernel_spec({}, Settings(), python=sys.executable, isolation=isolation) | {"argv": argv}
            words = f"{error.message}, for the kernelspec {name}"
            raise ConfigurationError(
                error.code, words, limit=error.limit, value=error.value, setting=error.setting
            ) from None


@functools.cache
def _isolation() -> list[str]:
    return isolation_flags(sys.executable)
