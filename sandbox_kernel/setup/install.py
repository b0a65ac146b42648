"""Installing the kernelspec: the template, this Python and the chosen settings become a kernel that front ends list.

jupyter_client is imported when it is needed. Settings are checked before a file is written.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config.sources import SETTINGS, from_files, is_for_all, merged, read_argv, resolve
from ..core.codes import FileCode, UsageCode
from ..core.errors import ConfigurationError, FileRefused, ImageMissing, SandboxError, wrong_argument
from ..core.kernel_command import PROVISIONER
from ..core.model import Settings, format_bytes
from ..core.package_files import PACKAGE, brought
from ..core.version import __version__
from ..files.host_paths import open_folder

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpecManager

    from .image_kernelspec import ImageKernelspec

NAME = "sandbox-python"
ENGINE_SECONDS = 5.0
"""How long an installation waits for what the engine says of memory and image."""
ZONES = Path("/usr/share/zoneinfo")
MACHINE = "machine"
"""The value of `time_zone` that names no zone."""


def check(values: Mapping[str, object]) -> Settings:
    """Check settings for a kernel that will start elsewhere: a relative path belongs to each notebook's own folder."""
    found = merged(from_files(), values)
    return resolve({name: value for name, value in found.items() if is_for_all(name, value)})


def flags(values: Mapping[str, object]) -> list[str]:
    """Return settings as arguments of a command, in the order of the table."""
    given = ((setting, values[name], name) for name, setting in SETTINGS.items() if name in values)
    return [f"{setting.flag}={word}" for setting, value, name in given for word in setting.form.written(name, value)]


def kernel_spec(
    values: Mapping[str, object],
    settings: Settings,
    *,
    python: str,
    isolation: list[str],
    language: str | None = None,
) -> dict[str, Any]:
    """Return kernel.json: the template with this Python, and `values` as arguments of the kernel.

    `language` is that of a kernel of the image's, which is no Python and has no debugger.

    The template's environment has glibc ask for large pages, which makes a display of 50 MB take half of the
    processor's time; no variable is a setting.
    """
    spec: dict[str, Any] = json.loads((brought("kernelspec") / "kernel.json").read_text())
    argv: list[str] = []
    for word in spec["argv"]:
        argv += [python] if word == "{python}" else isolation if word == "{isolation}" else [word]
    argv += flags(values)
    limits = settings.limits
    # For people who read the kernel's description; the arguments above are what counts.
    about = {
        "version": __version__,
        "image": settings.image,
        "kernel": settings.kernel,
        "runtime": settings.runtime or "default",
        "network": list(settings.get("network", ())) or "none",
        "secrets": [secret.name for secret in settings.get("secrets", ())],
        "memory": format_bytes(limits.memory),
        "cpus": limits.cpus,
        "scratch": format_bytes(limits.scratch_size),
        "cell_timeout": f"{limits.cell_timeout:g} s",
        "idle_timeout": f"{limits.idle_timeout:g} s",
        "outputs": settings.outputs,
    }
    metadata = spec["metadata"] | {"sandbox_kernel": about}
    spec |= {"argv": argv, "display_name": settings.display_name, "metadata": metadata}
    return spec if language is None else spec | {"language": language, "metadata": metadata | {"debugger": False}}


def values_of(name: str, specs: KernelSpecManager | None = None) -> dict[str, Any]:
    """Return the settings of an installed kernel, unchecked. Raises `ConfigurationError` if it is none of this."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        argv = list((specs or KernelSpecManager()).get_kernel_spec(name).argv)
    except (NoSuchKernel, ValueError) as error:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT, f"there is no kernel {name} that can be read", value=repr(name), setting="--name"
        ) from error
    if not is_ours(argv):
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT, f"the kernel {name} is another than this", value=repr(name), setting="--name"
        )
    return values_in(argv)


def is_ours(argv: Sequence[str]) -> bool:
    """Return whether the command of a kernelspec is that of a kernel of ours."""
    return "sandbox_kernel" in argv


def values_in(argv: Sequence[str]) -> dict[str, Any]:
    """Return the settings in the command of a kernel of ours, unchecked."""
    return read_argv(argv[argv.index("sandbox_kernel") + 1 :])[1]


def settings_in_order(name: str, values: Mapping[str, Any]) -> Settings:
    """Return an installed kernel's settings with `values` in place of its own, and without those that are wrong.

    These, and a kernel that there is not, are rows of the doctor's. Raises `ConfigurationError` for what is wrong in
    `values`, or in a file.
    """
    taken: dict[str, Any] = {}
    with suppress(ConfigurationError):
        taken = values_of(name)
    while True:
        try:
            return check(taken | dict(values))
        except ConfigurationError as error:
            check(values)
            wrong = error.setting if error.setting in taken.keys() - values.keys() else None
            taken = {setting: value for setting, value in taken.items() if wrong is not None and setting != wrong}


def isolation_flags(python: str) -> list[str]:
    """Return the flags with which `python` finds this package, and nothing that a start request or a cell chose.

    Without them, Python looks for modules in the notebook's folder first, which is where `downloads` may put files
    that cells made, and in PYTHONPATH. -I also leaves out the user's site folder, which is found through $HOME; where
    the package is installed right there, -E and -P are the best that works.
    """
    for flags in (["-I"], ["-E", "-P"]):
        command = [python, *flags, "-c", "import sandbox_kernel; print(sandbox_kernel.__file__)"]
        found = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)
        if found.returncode == 0 and Path(found.stdout.strip()).samefile(PACKAGE / "__init__.py"):
            return flags
    raise ConfigurationError(
        UsageCode.INSTALLATION_UNFIT,
        "this Python finds sandbox_kernel only in the current folder or through PYTHONPATH, which a kernel must not "
        "look at; install it first (in a checkout, `pip install -e .`)",
        value=python,
    )


def install(
    values: Mapping[str, object] | None = None,
    *,
    name: str = NAME,
    user: bool = False,
    prefix: str | None = None,
    seen: ImageKernelspec | None = None,
) -> Path:
    """Install the kernelspec, replacing one of that name, and return its folder.

    `seen` is what the image says of its kernel, if the settings name one of another language.

    Without `user` and `prefix` it goes to the system's folder, as with ipykernel. An engine that DOCKER_HOST or a
    context of Docker's names now is written down as a setting: the kernel finds it wherever a front end starts it.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    from .engine_setup import named_engine

    values = dict(values or {})
    if prefix == "":
        raise wrong_argument("--prefix", "an empty prefix is no folder")
    with suppress(ConfigurationError):  # one of another machine
        if "engine" not in values and (own := named_engine()) is not None:
            values["engine"] = own[0]
    python = sys.executable
    language = seen.language if seen else None
    spec = kernel_spec(values, check(values), python=python, isolation=isolation_flags(python), language=language)
    if prefix is not None and Path(prefix).resolve() == Path(sys.prefix).resolve():
        # Only here does each Jupyter that lists the kernel have the provisioner, without which it could not start it.
        spec["metadata"]["kernel_provisioner"] = {"provisioner_name": PROVISIONER}
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as scratch:
        source = Path(scratch, "kernelspec")
        shutil.copytree(brought("kernelspec"), source)
        (source / "kernel.json").write_text(json.dumps(spec, indent=2, ensure_ascii=False) + "\n")
        if seen is not None and seen.logo is not None:
            from .image_kernelspec import LOGO

            for logo in source.glob("logo-*"):
                logo.unlink()
            (source / LOGO).write_bytes(seen.logo)
        source.chmod(0o755)  # it is copied with its mode, and other users of a system-wide kernel must read it
        try:
            if prefix is not None:
                _refuse_links(prefix, name)
            return Path(KernelSpecManager().install_kernel_spec(str(source), name, user=user, prefix=prefix))
        except ValueError as error:
            raise ConfigurationError(
                UsageCode.WRONG_ARGUMENT, str(error), value=repr(name), setting="--name"
            ) from error
        except OSError as error:
            raise ConfigurationError(
                UsageCode.KERNELSPEC_NOT_WRITTEN,
                f"the kernelspec cannot be written ({error.strerror}); "
                "choose --user or --sys-prefix, or install as root",
                value=str(error.filename),
            ) from error


def uninstall(name: str = NAME, *, user: bool = False, prefix: str | None = None) -> Path:
    """Remove an installed kernelspec of this package, and return its folder. Raises `ConfigurationError`.

    Without `user` and `prefix` it is the first that front ends would find.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    specs = KernelSpecManager()
    if prefix is not None:
        specs.kernel_dirs = [str(Path(prefix, "share", "jupyter", "kernels"))]
    elif user:
        specs.kernel_dirs = [specs.user_kernel_dir]
    values_of(name, specs)
    try:
        return Path(specs.remove_kernel_spec(name))
    except OSError as error:
        raise ConfigurationError(
            UsageCode.KERNELSPEC_NOT_WRITTEN,
            f"the kernelspec cannot be removed ({error.strerror})",
            value=str(error.filename),
        ) from error


class Looked(NamedTuple):
    """What this machine says of the settings of a kernel."""

    impossible: list[ConfigurationError]
    """What was given and cannot work here."""
    doubts: list[str]
    """What is probably not meant."""


def look(settings: Settings, values: Mapping[str, object], name: str = NAME) -> Looked:
    """Hold the settings of a kernel against this machine; `values` are those that were given for this kernel.

    An engine that does not answer finds nothing wrong: it may be started later.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    impossible: list[ConfigurationError] = []
    zone = str(values.get("time_zone") or MACHINE)
    if zone != MACHINE and ZONES.is_dir() and not (ZONES / zone).is_file():
        impossible.append(_impossible("this machine knows no such time zone", "time_zone", zone))
    doubts: list[str] = []
    with suppress(SandboxError, OSError, TimeoutError):
        for one, given in asyncio.run(_of_engine(settings)):
            if given in values:
                impossible.append(one)
            elif given != "memory":  # the default of it is no more than a number that nobody chose
                doubts.append(one.message)
    others = KernelSpecManager().get_all_specs()
    same = [other for other, spec in others.items() if spec["spec"].get("display_name") == settings.display_name]
    doubts += [
        f"the kernel {other} is called {settings.display_name!r}, too: --display-name gives this one another name"
        for other in same
        if other != name
    ]
    return Looked(impossible, doubts)


async def _of_engine(settings: Settings) -> list[tuple[ConfigurationError, str]]:
    """Return what the engine lacks, each with the setting that asks for it."""
    from ..engines.select import make_engine

    found: list[tuple[ConfigurationError, str]] = []
    async with asyncio.timeout(ENGINE_SECONDS):
        engine = make_engine(settings)
        info = await engine.info()
        has, memory, runtime = info.memory_bytes, settings.limits.memory, settings.runtime
        if has and memory > has:
            why = "memory is more than this machine has: a cell could use up all of it"
            found.append((_impossible(why, "memory", format_bytes(memory), limit=format_bytes(has)), "memory"))
        if runtime and info.runtimes and runtime not in info.runtimes:
            found.append((_impossible("the engine has no such runtime", "runtime", runtime), "runtime"))
        if settings.limits_kept == "enforced" and not info.limited and not info.product:
            why = "no limit can be kept here: cells end as EngineError until limits = best-effort accepts that"
            found.append((_impossible(why, "limits", settings.limits_kept), "limits"))
        try:
            await engine.image(settings.image)
        except ImageMissing:
            why = f"the engine has no image {settings.image}: cells end as ImageMissing until it is built"
            found.append((_impossible(why, "image", settings.image), "image"))
    return found


def _impossible(why: str, setting: str, value: str, limit: str | None = None) -> ConfigurationError:
    return ConfigurationError(UsageCode.NOT_ON_THIS_MACHINE, why, limit=limit, value=value, setting=setting)


def _refuse_links(prefix: str, name: str) -> None:
    """Refuse a prefix beneath which a link lies ready: what is at its end would be emptied, and written to."""
    try:
        with open_folder(Path(prefix, "share", "jupyter", "kernels")) as kernels:
            if (kernels.path / name).is_symlink():
                raise FileRefused(FileCode.FOLDER_EXPECTED.note(name=name, what="a link"))
    except FileNotFoundError:  # what there is on the way has no link
        return
    except FileRefused as error:
        message = f"the kernelspec cannot go there; choose --user or --sys-prefix: {error.message}"
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, message, value=prefix, setting="--prefix") from None
