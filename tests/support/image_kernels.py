"""The kernels of images/kernels, as ordinary Jupyter kernels of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from sandbox_kernel.core.package_files import brought
from sandbox_kernel.setup.image_kinds import KERNELS
from tests.support.patience import SLOWNESS

SECONDS = 30.0 * SLOWNESS


def install(name: str, folder: Path) -> None:
    """Make a kernelspec `host-NAME` beneath `folder` as an image has it."""
    source, target = brought("images") / "kernels", folder / "kernels" / f"host-{name}"
    target.mkdir(parents=True)
    for file in KERNELS[name]:
        shutil.copyfile(source / file, target / file)
    spec = json.loads((source / f"{name}.json").read_text())
    spec["argv"][0] = sys.executable
    (target / "kernel.json").write_text(json.dumps(spec))


class Ran:
    """What a cell published, and its reply."""

    def __init__(self) -> None:
        self.outputs: list[tuple[str, Any]] = []
        self.reply: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []

    def take(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            if self.outputs and self.outputs[-1][0] == content["name"]:
                content = dict(content, text=self.outputs.pop()[1] + content["text"])
            self.outputs.append((content["name"], content["text"]))
        elif kind in {"display_data", "execute_result"}:
            self.outputs.append((kind, content["data"]))
        elif kind == "error":
            self.outputs.append((kind, (content["ename"], content["evalue"], content["traceback"])))

    def text(self, name: str = "stdout") -> str:
        return "".join(text for kind, text in self.outputs if kind == name)

    @property
    def error(self) -> tuple[str, str] | None:
        found = (self.reply["ename"], self.reply["evalue"]) if self.reply["status"] == "error" else None
        published = [value[:2] for kind, value in self.outputs if kind == "error"]
        assert published == ([found] if found else [])
        return found

    @property
    def shown(self) -> list[dict[str, Any]]:
        return [value for kind, value in self.outputs if kind in {"display_data", "execute_result"}]


class HostKernel:
    """One kernel, in a folder of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        install(name, folder)
        self.folder = folder / "work"
        self.folder.mkdir()
        self.manager = KernelManager(kernel_name=f"host-{name}")
        self.manager.kernel_spec_manager.kernel_dirs = [str(folder / "kernels")]
        self.manager.start_kernel(cwd=str(self.folder))
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)

    @property
    def pid(self) -> int:
        provisioner: Any = self.manager.provisioner
        return int(provisioner.pid)

    def run(
        self, code: str, *, inputs: Sequence[str] | None = None, interrupt_after: str | None = None, **options: Any
    ) -> Ran:
        """Run a cell. With `inputs`, it may ask; `interrupt_after` is what it writes before it is interrupted."""
        ran, left = Ran(), list(inputs or [])

        def take(message: dict[str, Any]) -> None:
            nonlocal interrupt_after
            ran.take(message)
            if interrupt_after and interrupt_after in ran.text():
                interrupt_after = None
                self.interrupt()

        def answer(message: dict[str, Any]) -> None:
            ran.asked.append(message["content"])
            self.client.input(left.pop(0))

        reply = self.client.execute_interactive(
            code,
            allow_stdin=inputs is not None,
            output_hook=take,
            stdin_hook=answer,
            timeout=SECONDS,
            **options,
        )
        ran.reply = reply["content"]
        return ran

    def interrupt(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def ask(self, what: str, *arguments: Any) -> dict[str, Any]:
        getattr(self.client, what)(*arguments)
        content: dict[str, Any] = self.client.get_shell_msg(timeout=SECONDS)["content"]
        return content

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)
        self.manager.cleanup_resources()
