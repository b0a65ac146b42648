"""A sandbox to ask an engine for, and its program: the agent, for any image with Python and ipykernel.

Shipping the source at start means that no image can hold a stale agent. It goes through the pipe, before any frame: so
the command is short, says what it is, and holds nothing of a session.

Public: plugins may import it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from ..core.model import (
    HOME,
    PYTHON_KERNEL,
    SCRATCH,
    SERVICE_PORT,
    SPILL,
    AgentOptions,
    Inside,
    Limits,
    SandboxSpec,
    Settings,
)
from ..core.package_files import PACKAGE
from ..core.time_zone import of_machine
from ..plugins import index
from . import attachment
from . import seccomp_program as system_calls
from .hardening import USER, accounts
from .seccomp import WATCHED, WATCHED_IN_PART, rules, rules_of_the_agent
from .select import require_apart
from .user_ids import new_uid

PYTHON = "python3"
MODULES: tuple[str, ...] = (
    *(
        "prepared",
        "wire",
        "zmtp",
        "kernel_messages",
        "process",
        "syscall_filters",
        "agent_report",
        "file_requests",
        "kernel",
        "agent",
    ),
    "start",
)
MODULES_OF_A_WAY_OUT = ("flow", "stream_relay")
MODULES_OF_A_WATCH = ("call_watch",)
MODULES_OF_A_KERNELSPEC = ("kernelspecs",)
STARTER = """\
import os
def read(count):
    data = bytearray()
    while len(data) < count:
        data += os.read(0, count - len(data)) or os._exit(0)
    return data
exec(compile(read(int(read(8), 16)), "agent", "exec"))
"""
"""Reads a program, as `sized` has it, and nothing of what comes behind it. A pipe that ends before it is whole, as that
of a host that has died, ends the process."""
COMMAND = (PYTHON, "-I", "-S", "-c", STARTER, "sandbox-kernel", "agent")
"""Of each container with an agent, which takes no package of the image."""

INSTALLED = f"{SCRATCH}/.packages"
"""The last folder where each kernel looks for modules. A plugin may fill it for a kernel that is restarted later."""

_SHIPPED = """\
import sys
SOURCES = {sources!r}
CALLS = {calls!r}
exec(compile(SOURCES["container.prepared"], "container/prepared.py", "exec"))
class Shipped:
    def find_spec(self, name, path=None, target=None):
        return type(sys.__spec__)(name, self, is_package=name == "container") if name in SOURCES else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compiled(SOURCES[name], name.replace(".", "/") + ".py"), module.__dict__)
sys.meta_path.insert(0, Shipped())
from container import start
start.main(CALLS, CONFIG, codes.clear)
"""
"""The modules are a package, as on the host; each is compiled when it is imported, and the kernel waits for few."""


class Extension(NamedTuple):
    """What an engine adds to the agent and the first kernel of a sandbox that it starts ahead."""

    module: str
    """The source of a module: its `extended` takes a kind of agent, and returns one that does more."""
    line: str
    """What the first kernel runs before it makes anything of ipykernel; a `module_line`."""


@cache
def agent_source(modules: tuple[str, ...] = MODULES, extension: str | None = None, *, watch: bool = False) -> str:
    """Return a program that holds the agent's modules and starts it with its `CONFIG`."""
    sources = {f"container.{name}": source_of(name) for name in modules}
    if extension is not None:
        sources["container.extension"] = extension
    return _SHIPPED.format(sources={"container": ""} | sources, calls=calls(watch=watch))


@cache
def calls(*, watch: bool = False) -> bytes:
    """Return the list of system calls as the agent's own filter; b"" for a processor whose numbers are unknown.

    The attestation then refuses the sandbox. An engine is on this machine, or in a virtual one of the same processor.
    """
    try:
        return system_calls.program(rules_of_the_agent() if watch else rules(), _machine(), asks=watch)
    except LookupError:
        return b""


def _machine() -> str:
    machine = os.uname().machine
    return {"arm64": "aarch64"}.get(machine, machine)


def watched_numbers() -> dict[int, str]:
    """Return the names of the calls that an agent watches, by their numbers; none for a processor that is unknown."""
    try:
        known = system_calls.numbers(_machine())
    except LookupError:
        return {}
    return {known[name]: name for name in (*WATCHED, *WATCHED_IN_PART) if name in known}


def sized(text: str) -> bytes:
    """Return what a reader knows the end of: a length in eight hexadecimal digits, and the text."""
    data = text.encode()
    return b"%08x" % len(data) + data


_PUBLISH_ALL = (
    "(lambda thread, more: thread.schedule(lambda: (more(thread), hasattr(thread, '_xpub_stream') and"
    " thread._xpub_stream.on_recv(lambda frames: (more(thread), thread._handle_subscription(frames))))))"
    "(get_ipython().kernel.iopub_thread, lambda thread: setattr(thread.socket, 'sndhwm', 200_000))"
)
"""A socket belongs to its thread. What is set counts for those who are connected, and not for those who come later: so
it is set again with each subscription, before its welcome."""


def source_of(module: str) -> str:
    """Return the source of a module of `container`, or of `index.INSIDE`, whose plugin is here."""
    if module in index.INSIDE:
        return index.inside(module)
    return (PACKAGE / "container" / f"{module}.py").read_text(encoding="utf-8")


def module_line(source: str, name: str) -> str:
    """Return one line of Python, an expression, that runs a source in a module of its own.

    It leaves no name where it is run, and no frame where a debugger shows the code of a user: a name that begins like
    this is nobody's file to it. `Inside.lines` are such lines.
    """
    return f"exec(compile({source!r}, '<frozen {name}>', 'exec'), {{'__name__': {name!r}}})"


def _installing(module: str) -> str:
    return f"{source_of(module)}\ninstall_here()\n"


@cache
def _installed(module: str) -> str:
    """Return a line for a kernel's start that installs a module of `container`."""
    return module_line(_installing(module), module)


def sources() -> list[tuple[str, str]]:
    """Return the name and the text of all that is compiled inside, for an image to be made with its bytecode."""
    modules = (*MODULES, *MODULES_OF_A_WAY_OUT, *MODULES_OF_A_WATCH, *MODULES_OF_A_KERNELSPEC)
    of_kernels = ("output_inlining", "figure_data", "secret_watch")
    gone = {name for name, plugin in index.INSIDE.items() if not index.is_here(plugin)}
    return [
        *((f"container/{name}.py", source_of(name)) for name in modules if name not in gone),
        *((f"<frozen {name}>", _installing(name)) for name in of_kernels if name not in gone),
        ("<frozen kernel_launcher>", source_of("kernel_launcher")),
    ]


def preload_line(modules: tuple[str, ...]) -> str:
    """Return a line for a kernel's start that imports the modules that the image has, and leaves no name."""
    source = "".join(f"try:\n import {name}\nexcept Exception:\n pass\n" for name in modules)
    # One that the image does not have, or that fails, is the cell's own to meet.
    return f"exec({source!r}, {{'__name__': 'preload'}})"


def _environment(limits: Limits) -> dict[str, str]:
    """Return the variables that all kernels have."""
    threads = str(max(1, int(limits.cpus)))
    return {
        "HOME": "/tmp/home",  # noqa: S108 (a path inside the container, on its own tmpfs)
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHON_CPU_COUNT": threads,
        # Numerical libraries count the host's cores and start a thread for each; the sandbox has fewer.
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "NUMBA_NUM_THREADS": threads,
        "NUMEXPR_MAX_THREADS": threads,
        "POLARS_MAX_THREADS": threads,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "SHELL": "/bin/sh",
        "TERM": "xterm-color",
        "TMPDIR": "/tmp" if limits.scratch == "memory" else SPILL,  # noqa: S108
        "USER": USER,
    }


OWN_VARIABLES = frozenset(_environment(Limits()))
"""What a caller cannot set for a whole sandbox."""


PLAIN = AgentOptions()


def agent_config(limits: Limits, options: AgentOptions = PLAIN) -> dict[str, Any]:
    """Return what an agent is told at its start, for a session with these limits."""
    inside, variables = options.inside, dict(options.variables)
    environment = _environment(limits)
    if options.zone is not None and "TZ" not in variables:
        environment["TZ"] = options.zone
    config: dict[str, Any] = {
        "max_frame": limits.message_limit + (1 << 20),
        "runtime": "/tmp/.sandbox",  # noqa: S108
        "home": "/opt/sandbox/home",
        "scratch": HOME if options.home else SCRATCH,
        "accounts": accounts("{uid}"),
        "environment": environment,
        "kernel": [
            *("-f", "{connection_file}", "--HistoryManager.hist_file=:memory:"),
            # ipykernel sleeps 0.5 ms a cell so that outputs may overtake the reply; the host keeps every reply until
            # idle, the last of a cell's outputs, has come.
            "--IPythonKernel._execute_sleep=0",
        ],
        "prepared": source_of("prepared"),
        "launcher": source_of("kernel_launcher"),
        "lines": [
            # ipykernel publishes from a socket that drops what is over a thousand messages, without a word: a cell's
            # result among them, where the machine is busy. As many may wait as two cells may send.
            _PUBLISH_ALL,
            *([_installed("output_inlining")] if index.is_here("inlining") else []),
            f"__import__('sys').path.append({INSTALLED!r})",
            *([_installed("figure_data")] if options.charts and index.is_here("charts") else []),
            *([_installed("secret_watch")] if options.watch and options.kernel == PYTHON_KERNEL else []),
            *(inside.lines if inside is not None else ()),
        ],
    }
    given = {**variables, **(inside.environment if inside is not None else {})}
    config["environment"] = {**given, **environment}  # what all have is not replaced
    if options.kernel != PYTHON_KERNEL:
        config["kernelspec"] = options.kernel
    return config


def program_of(
    options: AgentOptions,
    limits: Limits,
    *,
    source: str | None = None,
    warm: bool = False,
    unattended: bool = False,
    preload: tuple[str, ...] = (),
    extension: Extension | None = None,
) -> bytes:
    """Return what `COMMAND` runs for a session, as it reads it.

    A `warm` one is started before anybody wants it, and waits to be claimed;
    its first kernel has imported `preload` by then, and no later one, which somebody waits for. An `unattended` one
    has nobody who speaks to it until then. `source` takes the place of the agent's own.
    """
    config = agent_config(limits, options)
    modules = MODULES
    if options.inside is not None and index.is_here("streams"):
        modules += MODULES_OF_A_WAY_OUT
        config["port"] = SERVICE_PORT
    if options.watch:
        modules += MODULES_OF_A_WATCH
        config["watch"] = watched_numbers()
    if "kernelspec" in config:
        modules += MODULES_OF_A_KERNELSPEC
    elif preload:
        config["first"] = {"lines": [preload_line(preload)]}
    if warm:
        config["warm"] = True
    if unattended:
        config["unattended"] = True
    if extension is not None:
        config["extension"] = True
        config["first"] = {"before": [extension.line]}
    source = source or agent_source(modules, None if extension is None else extension.module, watch=options.watch)
    is_shared = not options.variables and options.inside is None
    return (_joined if is_shared else _joined.__wrapped__)(repr(config), source)


@lru_cache(maxsize=8)
def _joined(config: str, source: str) -> bytes:
    """Return a program; a process with many sandboxes has it once, where it holds nothing of a caller's own."""
    return sized(f"CONFIG = {config}\n{source}")


def new_spec(
    settings: Settings, session_id: str | None = None, inside: Inside | None = None, *, watch: bool = False
) -> SandboxSpec:
    """Return what to ask an engine for: a container for a session, a new one unless its id is given.

    Calls are watched if its settings want that, or `watch` does: those of the session that has the sandbox.

    Raises `ConfigurationError` for a setting that the engine cannot keep.
    """
    require_apart(settings)
    zone = of_machine() if settings.time_zone == "machine" else settings.time_zone
    options = AgentOptions(
        variables=settings.environment,
        charts=settings.charts,
        home=settings.home,
        zone=zone,
        inside=inside,
        kernel=settings.kernel,
        watch=watch or settings.watches_calls,
    )
    found = attachment.of(settings)
    return SandboxSpec(
        session_id=session_id or os.urandom(16).hex(),
        image=settings.image,
        runtime=settings.runtime,
        limits=settings.limits,
        command=COMMAND,
        program=program_of(options, settings.limits),
        limits_kept=settings.limits_kept,
        cpuset=settings.cpuset,
        core_scheduling=settings.core_scheduling,
        uid=attachment.owner(found) or new_uid(),
        made_of=options,
        attached=found,
    )


def without_home(spec: SandboxSpec) -> SandboxSpec:
    """Return what an engine starts that has scratch at one place alone."""
    plain = spec.without_home()
    if plain is spec or plain.made_of is None or spec.made_of is None:
        return spec
    own = spec.program == program_of(spec.made_of, spec.limits)
    return replace(plain, program=program_of(plain.made_of, spec.limits)) if own else plain


def nested_config(spec: SandboxSpec, folder: str) -> dict[str, Any]:
    """Return what a further agent of a sandbox is told, whose kernel begins in `folder` (`plugins.contexts`)."""
    if spec.made_of is None:
        raise ValueError("it is no agent's")
    return agent_config(spec.limits, spec.made_of) | {"scratch": folder}
