"""What the settings `network` and `secrets` need of this machine: packages, files, variables, and a way out of its own.

Reads the values of secrets, as a kernel would at its start, and keeps none. Imports config, install and the gateway.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from ..config.sources import read_argv
from ..core.errors import SandboxError
from ..core.extras import install_words
from ..core.model import Settings
from .install import check

EXTRA = install_words("secrets")


@dataclass(frozen=True, slots=True)
class Found:
    """What is missing, or may be, and what to do."""

    missing: str
    remedy: str
    certain: bool = True
    """Whether a kernel would miss it too: a variable may be set for a Jupyter that was started elsewhere."""


def problems(settings: Settings, environment: Mapping[str, str]) -> Iterator[Found]:
    """Yield what a session of these settings would miss that had these variables."""
    if settings.secrets and find_spec("cryptography") is None:
        yield Found("secrets need the library cryptography, which is not here", EXTRA)
        return
    readable = True
    for source in settings.secrets:
        from ..gateway.value import read

        try:
            read(source, environment)
        except SandboxError as error:
            readable = False
            if source.kind == "env" and source.place not in environment:
                remedy = f"set {source.place} where Jupyter is started, or keep the value in a file"
                yield Found(str(error), remedy, certain=False)
            else:
                yield Found(str(error), f"{source.kind} {source.place}: docs/secrets.md says what it may be")
    try:
        from ..gateway.opening import WayOut

        WayOut(settings if readable else replace(settings, secrets=()), environment=environment)
    except SandboxError as error:
        yield Found(str(error), f"repair what the setting {getattr(error, 'setting', None) or 'network'} names")


def kernels(folder: Path | None = None) -> Iterator[tuple[str, Settings, dict[str, str]]]:
    """Yield each installed kernel of ours that has a way out: its name, settings and variables. Broken ones are not.

    With `folder`, it is the kernelspec in there alone.
    """
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    named = {folder.name: str(folder)} if folder else KernelSpecManager().find_kernel_specs()
    for name, place in sorted(named.items()):
        try:
            spec = KernelSpec.from_resource_dir(place)
            argv = list(spec.argv)
            settings = check(read_argv(argv[argv.index("sandbox_kernel") + 1 :])[1])
        except Exception:  # noqa: S112 (of others, or broken: another row says so of the one that is asked about)
            continue
        if settings.network or settings.secrets:
            yield name, settings, {**os.environ, **spec.env}
