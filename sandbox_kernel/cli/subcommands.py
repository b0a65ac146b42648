"""What each command does, and prints. Each imports what it needs when it runs.

A command takes the parsed options, says what it did on stdout, and returns an exit code; what it raises becomes one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.forms import did_you_mean
from ..config.presets import PRESETS, filled
from ..config.sources import SETTINGS, from_files, merged
from ..core.codes import TABLE, EndCode, UsageCode
from ..core.errors import ConfigurationError, EngineUnavailable, SandboxError
from ..core.model import PYTHON_KERNEL, SandboxSample, Settings, format_bytes
from ..core.remedies import confined
from ..core.tasks import Tasks
from ..engines.abilities import Reaping
from ..engines.inspectable import Listed, require_met, use_of, user_of
from ..engines.select import (
    AUTO,
    BUBBLEWRAP,
    DOCKER,
    PODMAN,
    answers,
    chosen,
    explained,
    is_service,
    make_engine,
    make_engine_of_all,
    names,
    others,
    provider,
    without_own_broker,
)
from ..plugins import index
from ..policy.safe_text import columns, ours
from ..setup.install import NAME, check, install, uninstall
from .help_text import FINE

if TYPE_CHECKING:
    from ..setup.image_kernelspec import ImageKernelspec

DISPLAY_NAME = b"--display-name="
NOTEBOOK = b"JPY_SESSION_NAME="
"""A variable in which a Jupyter Server tells a kernel the path of its notebook."""


WHICHEVER = ("auto", "docker")
"""Values of `engine` for which setup may install Docker's."""
FOLDERS = ("uploads", "downloads")
"""Settings that `setup` gives the kernel, each the name of a folder beside the notebook."""
SECONDS_FOR_LISTS = 90.0
"""How long `ps` and `reap` wait for the engine."""
SECONDS_BETWEEN_REAPS = 10.0
"""With `reap --follow`, where an engine does not tell of ends."""


def name_of(pid: int | None) -> str:
    """Return the name that a kernel's process was given by its kernelspec; empty if it has none, or is no kernel."""
    with suppress(OSError):
        words = _words(pid)
        given = [word.removeprefix(DISPLAY_NAME) for word in words if word.startswith(DISPLAY_NAME)]
        return os.fsdecode(given[-1]) if given and b"sandbox_kernel" in words else ""
    return ""


def work_of(pid: int | None) -> str:
    """Return the notebook of a kernel's process, the folder it was started in, or a command; empty if unknown."""
    if pid is None:
        return ""
    place = Path("/proc", str(pid))
    words: list[str] = []
    with suppress(OSError):
        words = [os.fsdecode(word) for word in _words(pid) if word]
    with suppress(OSError):
        for variable in (place / "environ").read_bytes().split(b"\0"):
            if variable.startswith(NOTEBOOK) and "-f" in words:
                return os.fsdecode(variable.removeprefix(NOTEBOOK))
    if "-f" in words and "sandbox_kernel" in words:
        with suppress(OSError):
            return f"a kernel in {(place / 'cwd').readlink()}"
    return " ".join([os.path.basename(word) for word in words[:1]] + words[1:])[:60]  # noqa: PTH119 (any text)


def _words(pid: int | None) -> list[bytes]:
    return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")


def ps(options: argparse.Namespace) -> int:
    """List the running sandboxes: what each is for, and what it uses."""
    rows: tuple[Listed, ...] = engine_call(options, "list")
    used: list[SandboxSample] = engine_call(options, use_of, [row.container for row in rows])
    if options.json:
        lines = [
            asdict(row)
            | {
                "user": user_of(row),
                "memory_used_bytes": use.memory_bytes,
                "cpu_seconds": use.cpu_seconds,
                "work": work_of(row.owner_pid) if row.owner_alive else "",
                "kernel": name_of(row.owner_pid) if row.owner_alive else "",
            }
            for row, use in zip(rows, used, strict=True)
        ]
        print(json.dumps(lines, indent=2))
    else:
        shown = [for_people(row, use) for row, use in zip(rows, used, strict=True)]
        print(columns(shown) if shown else "no sandbox is running")
    for other in others() if check(options.values).engine == AUTO else ():
        print(f"not taken: the broker at {other}, which another installation of this package started", file=sys.stderr)
    return FINE


def for_people(row: Listed, used: SandboxSample) -> dict[str, str]:
    alive = {True: "", False: " (gone)", None: " (elsewhere)"}[row.owner_alive]
    memory, cpu = used.memory_bytes, used.cpu_seconds
    return {
        "session": row.session[:12],
        "user": user_of(row) or "unknown",
        "owner": "nobody" if row.state == "detached" else f"{row.owner_pid or 'unknown'}{alive}",
        "state": row.state,
        "age": _duration(row.age_seconds),
        "image": row.image,
        "memory": " of ".join("?" if not one else format_bytes(one) for one in (memory, row.memory_bytes)),
        "cpu": "?" if cpu is None else f"{cpu:.1f} s",
        "network": row.network,
        "kernel": name_of(row.owner_pid) if row.owner_alive else "",
        "work": work_of(row.owner_pid) if row.owner_alive else "",
    }


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


# --- commands --------------------------------------------------------------------------------------------------------


def set_up(options: argparse.Namespace) -> int:
    """Prepare this machine: engine, image, kernelspec, and the page policy of Jupyter Server if that is installed.

    Nothing that exists already is changed. If no container engine answers, an ordinary user gets an environment for
    bubblewrap instead, which needs neither Docker nor root.

    The kernel has two folders beside each notebook, unless a setting says otherwise: files in `uploads` are copied into
    the sandbox, and files that cells save appear in `downloads`. You create the first one yourself.

    The kernel is installed into the virtual environment, or for the user if there is none, unless a flag says where.
    """
    taken = from_files()
    options.values = {name: name for name in FOLDERS if name not in taken} | options.values
    settings = without_own_broker(check(options.values))
    if is_service(chosen(settings)):
        print(f"engine      {explained(settings)}")
    elif (its := provider(chosen(settings))).image_kind == "own":
        print(f"image       {its.build('', force=False, progress=_progress)}")
    elif settings.engine == BUBBLEWRAP or not _container_engine(options, settings):
        _set_up_bubblewrap(options, settings)
    seen = _kernel_of_image(options, settings.kernel)
    options.user, options.prefix = _place(options)
    folder = _install(options, seen)
    print(f"kernelspec  {folder}")
    codes = [plugin.after_setup(options, folder) for plugin in index.plugins() if plugin.after_setup is not None]
    if "downloads" in options.values and "uploads" in options.values:
        print(
            f"\nFiles: what lies in the folder {options.values['uploads']!r} beside a notebook is there for its cells; "
            f"what they save appears in {options.values['downloads']!r}."
        )
    return max(codes, default=FINE)


def _container_engine(options: argparse.Namespace, settings: Settings) -> bool:
    """Set up a container engine and an image; return whether there is one. Raises where nothing else will do."""
    from ..setup import engine_setup, image_build

    status = engine_setup.find_engine(None if settings.engine == AUTO else settings.engine)
    own_choice = settings.engine not in WHICHEVER or engine_setup.named_engine() is not None
    own_choice = own_choice or (settings.engine == AUTO and answers(PODMAN))  # slow, if it is not available just now
    # Not with gVisor either, nor a runtime: bubblewrap has none.
    other = settings.engine == AUTO and not own_choice and not options.gvisor and settings.runtime is None
    other = other and BUBBLEWRAP in names()
    if not status.available and not own_choice and os.geteuid() == 0 and not confined():
        print(f"engine      {status.problem}")
        if options.yes or _agreed("Install the distribution's engine, if there is none, and start it?"):
            status = engine_setup.install_engine(_progress)
        elif not other or not answers(BUBBLEWRAP):
            raise EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, f"{status.problem}. {status.remedy}")
    if not status.available and other:
        if answers(BUBBLEWRAP):
            return False
        raise EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, f"{status.problem}. {status.remedy}")
    engine_setup.require_engine(status)
    print(f"engine      {status.product} {status.server_version} at {status.host}")
    if options.gvisor and "runsc" not in status.runtimes:
        engine_setup.install_gvisor(_progress)
    if settings.image == SETTINGS["image"].default:
        print(f"image       {image_build.build('data', progress=_progress, engine=status.host)}")
    return True


def _set_up_bubblewrap(options: argparse.Namespace, settings: Settings) -> None:
    """Make an environment; where nobody can limit memory, ask whether that is to be done without, and name it so."""
    engine = make_engine(replace(settings, engine=BUBBLEWRAP))
    info = asyncio.run(engine.info())
    require_met(asyncio.run(engine.conditions()))
    print(f"engine      bubblewrap {info.version}, which needs neither Docker nor root")
    if not info.limited:
        print("limits      this user may have no cgroup here: memory and processes are watched, processors not limited")
        question = "Install the kernel all the same, under a name that says so (limits = best-effort)?"
        if "limits" not in from_files() | options.values and (options.yes or _agreed(question)):
            options.values["limits"] = "best-effort"
        elif "limits" not in from_files() | options.values:
            print("            to accept that: `sandbox-kernel setup --engine bubblewrap --limits best-effort`")
        if check(options.values).limits_kept == "best-effort" and "display_name" not in from_files():
            options.values.setdefault("display_name", f"{settings.display_name} with limits best-effort")
    if settings.image == SETTINGS["image"].default:
        print(f"environment {provider(BUBBLEWRAP).make_root('data', progress=_progress)}")


def build(options: argparse.Namespace) -> int:
    """Build the environment of cells: an image, or for bubblewrap a root, which is a folder of this user's.

    An ordinary user can build a root, of this machine's Python and libraries and the packages of the image.
    For an engine of a plugin: what its sandboxes start from, such as a kernel and a disk beside a root.
    """
    from ..setup import image_build

    its = provider(options.engine or DOCKER)
    if its.image_kind == "own":
        if options.from_image or options.requirements or options.tag:
            words = f"the engine {its.name} has one image, with packages of its own"
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, words)
        print(its.build("", force=options.force, progress=_progress))
        return FINE
    if options.from_image and its.image_kind == "image":
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "--from-image makes a root: it needs --engine bubblewrap")
    if options.from_image and options.requirements:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "an image has its packages: --requirements has no use there")
    how = {"tag": options.tag, "requirements": options.requirements, "force": options.force, "progress": _progress}
    if its.image_kind == "root":
        made = provider(BUBBLEWRAP).make_root(options.kind, image=options.from_image, **how)
    else:
        named = options.engine if options.engine in {DOCKER, PODMAN} else None  # others have images of one of these
        made = image_build.build(options.kind, **how, engine=named)
    print(its.build(made, force=options.force, progress=_progress))
    return FINE


def install_kernelspec(options: argparse.Namespace) -> int:
    """Install a kernelspec: one more kernel in the picker of front ends, with its own settings.

    Without a flag that says where, it goes where `setup` puts its own: into the virtual environment, or to the user.

    With --kernel, it looks into the image for the kernel's name, language and logo.

    A setting that cannot work on this machine is an error, unless --force is given.
    """
    from ..setup.install import look

    if options.join is not None:
        _join(options)
    named, shown = options.name, options.values.get("display_name")
    seen = _kernel_of_image(options, check(options.values).kernel)
    if options.join is not None and named is None:
        parts = ("sandbox-shared", options.join.lower(), "" if seen is None else options.values["kernel"])
        options.name = "-".join(filter(None, parts))
        language = "Python 3" if seen is None else seen.display_name
        options.values["display_name"] = shown or f"{language} (shared{options.join and ': '}{options.join})"[:100]
    if options.name != NAME:
        options.values.setdefault("display_name", f"Python 3 ({options.name})")
    impossible, doubts = look(check(options.values), options.values, options.name)
    if impossible and not options.force:
        one = impossible[0]
        words = f"{one.message}; `sandbox-kernel install --force` installs it all the same"
        raise ConfigurationError(one.code, words, limit=one.limit, value=one.value, setting=one.setting)
    print(f"Installed kernelspec {options.name} in {_install(options, seen)}")
    for doubt in (*map(str, impossible), *doubts):
        print(f"note: {doubt}", file=sys.stderr)
    return FINE


def uninstall_kernelspec(options: argparse.Namespace) -> int:
    """Remove a kernel from the picker of front ends. The images, the audit and your files stay.

    Without a flag that says where, it removes the kernel that front ends find by this name.
    """
    user, prefix = options.user, sys.prefix if options.sys_prefix else options.prefix
    print(f"Removed {uninstall(options.name, user=user, prefix=prefix)}")
    return FINE


def reap(options: argparse.Namespace) -> int:
    """Remove sandboxes whose owner is gone.

    What plugins keep goes as well if it was never finished, or is too old: snapshots after `snapshots_age`.
    """
    if options.follow:
        return _reap_on(options)
    count = engine_call(options, "reap")
    if count:
        print(f"removed {count} {'sandbox' if count == 1 else 'sandboxes'}")
    settings = check(options.values)
    tidied = [plugin.tidy(settings) for plugin in index.plugins() if plugin.tidy is not None]  # may raise: last
    gone = ", ".join(filter(None, tidied))
    if gone or not count:
        print(f"removed {gone}" if gone else "nothing to remove")
    return FINE


def _reap_on(options: argparse.Namespace) -> int:
    """Go on until SIGTERM or SIGINT, and print what goes."""

    def told(name: str) -> None:
        print(f"removed {name}", flush=True)

    async def follow() -> None:
        engine = await make_engine_of_all(check(options.values))
        if isinstance(engine, Reaping):
            await engine.reap_on(told)
        while True:
            if count := await engine.reap():
                told(f"{count} {'sandbox' if count == 1 else 'sandboxes'}")
            await asyncio.sleep(SECONDS_BETWEEN_REAPS)

    async def until_told() -> None:
        following, loop = Tasks().hold(follow(), "reap"), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, following.cancel)
        with suppress(asyncio.CancelledError):
            await following

    asyncio.run(until_told())
    return FINE


def show_settings(options: argparse.Namespace) -> int:
    """Show every setting: its value for a kernel that starts on this machine now, and its meaning."""
    files, given = from_files(), options.values
    check(given)
    rows: list[dict[str, Any]] = []
    found = filled(merged(files, given))
    for name, setting in SETTINGS.items():
        value = found.get(name, setting.default_for_people)
        source = "argument" if name in given else "config file" if name in files else "default"
        if name in found and name not in given and files.get(name) != value:
            preset = str(found["preset"])
            source = f"preset {preset}: {PRESETS[preset].values[name][1]}"
        rows.append({"name": name, "value": value, "from": source, "help": setting.help})
        if name == "engine":
            rows[-1]["here"] = explained(Settings(engine=str(value)))
    if options.json:
        print(json.dumps(rows, indent=2, default=str))
    elif options.markdown:
        from ..setup.reference_pages import settings_page

        print(settings_page(), end="")
    else:
        for row in rows:
            here = f"; here {row['here']}" if row["value"] == AUTO and "here" in row else ""
            print(f"{row['name']} = {row['value']}  ({row['from']}{here})")
            print(textwrap.indent(textwrap.fill(row["help"], 96), "    "))
    return FINE


def codes(options: argparse.Namespace) -> int:
    """Show every code of a refusal, a removal or an end: its severity, its meaning, and what to do."""
    from ..setup import reference_pages

    tables = TABLE | index.codes()
    if not options.markdown:  # which is the page of this project
        tables |= {title: table for title, table in index.codes_of_others().items() if title not in tables}
    if options.json:
        print(json.dumps(reference_pages.codes_as_rows(tables), indent=2))
    else:
        print(
            reference_pages.codes_page(tables) if options.markdown else f"{reference_pages.codes_as_text(tables)}\n",
            end="",
        )
    return FINE


MERGED_PAGES = {
    "daytona": "chat",
    "gpt-oss": "chat",
    "jupyter-gateway": "jupyter-server",
    "librechat": "chat",
    "limits": "outputs",
    "measurements": "figures",
    "notebooks": "batch",
    "open-webui": "chat",
    "packages": "images",
    "provisioner": "jupyterlab",
    "walls": "isolation",
}
"""Names of pages that are sections of others: they find the page that has them."""


def docs(options: argparse.Namespace) -> int:
    """Show a page of the documentation that came with this installation, or list the pages."""
    from ..core.package_files import brought

    folder = brought("docs")
    pages = {path.stem: path for path in sorted(folder.glob("*.md"))}
    if options.page is None:
        wide = max(map(len, pages), default=0)
        titles = [path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for path in pages.values()]
        listed = [f"{name:{wide}}  {title}" for name, title in zip(pages, titles, strict=True)]
        lines = [str(folder)] if options.path else listed
    else:
        name = options.page.rpartition("/")[2].removesuffix(".md")
        name = MERGED_PAGES.get(name, name)
        if name not in pages:
            why = f"there is no page {ours(name[:100])!r}{did_you_mean(name, list(pages))}"
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, why, value=options.page, setting="PAGE")
        lines = [str(pages[name]) if options.path else pages[name].read_text(encoding="utf-8").rstrip("\n")]
    print("\n".join(lines))
    return FINE


def completion(options: argparse.Namespace) -> int:
    """Print a script that completes commands, options and values in a shell.

    The script contains all the words and calls nothing later. Print it again after an update.
    """
    from .completion import script

    print(script(options.parser, options.shell), end="")
    return FINE


# --- what the commands share -----------------------------------------------------------------------------------------


def _place(options: argparse.Namespace) -> tuple[bool, str | None]:
    """Return whether it is for the user alone, and else beneath which folder."""
    user, prefix = options.user, sys.prefix if options.sys_prefix else options.prefix
    if options.near and not user and prefix is None:
        user, prefix = (False, sys.prefix) if sys.prefix != sys.base_prefix else (True, None)
    return user, prefix


def _install(options: argparse.Namespace, seen: ImageKernelspec | None) -> Path:
    user, prefix = _place(options)
    return install(options.values, name=options.name, user=user, prefix=prefix, seen=seen)


def _join(options: argparse.Namespace) -> None:
    """Give a kernel the engine of a shared sandbox. Raises `ConfigurationError`."""
    if "engine" in options.values:
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "give --join or --engine, and not both", setting="--join")
    options.values["engine"] = f"shared:///{options.join}" if options.join else "shared"
    check(options.values)


def _kernel_of_image(options: argparse.Namespace, kernel: str) -> ImageKernelspec | None:
    """Name the kernelspec, and return what the image says of a kernel of another language."""
    if kernel == PYTHON_KERNEL:
        options.name = options.name or NAME
        return None
    from ..setup.image_kernelspec import ImageKernelspec, look

    try:
        seen = look(check(options.values))
    except SandboxError as error:
        if not getattr(options, "force", False):
            raise
        print(f"note: {error}", file=sys.stderr)
        seen = ImageKernelspec.unseen(kernel)
    options.name = options.name or f"sandbox-{kernel}"
    mark = "sandbox" if options.name == f"sandbox-{kernel}" else options.name
    options.values.setdefault("display_name", f"{seen.display_name} ({mark})"[:100])
    return seen


def engine_call(options: argparse.Namespace, method: str | Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> Any:
    async def call() -> Any:
        settings = check(options.values)
        try:
            async with asyncio.timeout(SECONDS_FOR_LISTS):
                engine = await make_engine_of_all(settings)
                return await (getattr(engine, method)() if isinstance(method, str) else method(engine, *given))
        except TimeoutError:
            raise EngineUnavailable(
                EndCode.ENGINE_SILENT, "the container engine does not answer", limit=f"{SECONDS_FOR_LISTS:g} s"
            ) from None

    return asyncio.run(call())


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
