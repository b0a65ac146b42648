"""Kernelspecs of a machine, and managers that find these alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

NAME = "sandbox-kernel"
IPYKERNEL = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")


def spec(folder: Path, name: str, argv: tuple[str, ...] = IPYKERNEL, **other: Any) -> KernelSpecManager:
    """Write a kernelspec, and return a manager for the folder that it is in."""
    home = folder / "kernels" / name
    home.mkdir(parents=True)
    said = {"argv": list(argv), "display_name": name, "language": "python", "interrupt_mode": "signal"}
    (home / "kernel.json").write_text(json.dumps(said | other))
    found = KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    found.ensure_native_kernel = False
    return found


def provisioned(**config: Any) -> dict[str, Any]:
    """Return what a kernelspec says to be started in a sandbox with these settings."""
    return {"kernel_provisioner": {"provisioner_name": NAME, "config": config}}


def manager(specs: KernelSpecManager, name: str) -> KernelManager:
    return KernelManager(kernel_name=name, kernel_spec_manager=specs)


def leaves(mark: Path) -> tuple[str, ...]:
    """Return the command of a kernel that leaves a mark where it runs, and is ipykernel then."""
    program = f"open({str(mark)!r}, 'w').close(); from ipykernel.kernelapp import launch_new_instance as go; go()"
    return (sys.executable, "-c", program, "-f", "{connection_file}")
