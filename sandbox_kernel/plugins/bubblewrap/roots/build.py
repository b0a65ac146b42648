"""Making a root for an engine without images: an environment of a lock's packages, beside this machine's libraries.

    GENERATION/bin     programs, copied
    GENERATION/env     the environment
    GENERATION/home    what each session's home begins with

pip runs as this user, without a network, and no code of a package runs on the machine itself: what has to run once does
so in a sandbox.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from ....core.errors import EngineError, ImageMissing
from ....core.model import format_bytes
from ....core.package_files import brought
from ....engines import shipping
from ....engines.image_names import BY_NAME, Kind, build_command
from ....setup.build_lock import alone
from ....setup.command_steps import Say, Steps
from ....setup.image_build import check_tag
from ....setup.image_kinds import KERNEL_FILES, KERNELS, KINDS
from ....wheels import image_wheels
from ... import index
from ..discovery import bubblewrap_program
from ..launch import has_own_proc
from ..root_lookup import find as find_root
from . import debian_root, root_layout
from .root_generations import Generation, folder_of, new_generation, read
from .root_layout import ENVIRONMENT, HOME, PROGRAMS, Layout, lay_out
from .root_steps import lent, run_step, with_more

FILES = ("plots.py", "measures.py", "unpack.js", "plotly_failures.js", "plotly_without_outlines.js")
"""All that is taken from images/. Each kernel's start calls the first, which loads the others when they are needed."""


def add(recipes: Path, environment: Path, home: Path) -> None:
    """Add all, of the folder images/, to an environment and to the home that each session's begins with."""
    packages = next((environment / "lib").glob("python*/site-packages"))
    startup = home / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    for module in FILES:
        shutil.copyfile(recipes / module, packages / f"sandbox_{module}")
    (startup / "00-plots.py").write_text('__import__("sandbox_plots").prepare()\n')
    shutil.copyfile(recipes / "pip.conf", environment / "pip.conf")
    (home / ".local" / packages.relative_to(environment)).mkdir(parents=True)
    _link_fonts(packages, environment / "share" / "fonts")
    needed = {"bash": environment / "bin" / "bash", "deno": environment / "bin" / "deno", "sql": packages / "duckdb"}
    for name, files in KERNELS.items():
        if needed[name].exists():
            folder = environment / "share" / "jupyter" / "kernels" / name
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(recipes / "kernels" / f"{name}.json", folder / "kernel.json")
            for file in files:
                shutil.copyfile(recipes / "kernels" / file, folder / file)


def _link_fonts(packages: Path, folder: Path) -> None:
    """Put the fonts of packages where programs look for fonts."""
    folder.mkdir(parents=True, exist_ok=True)
    for font in (*packages.glob("fontpkg_*/files/*.ttf"), *packages.glob("noto_cjk_*/*.ttc")):
        (folder / font.name).symlink_to(os.path.relpath(font, folder))


RECIPE = 2
"""Of the steps in this module: a root that was made by others is stale."""
WARM_SECONDS = 300.0
LARGEST_PROGRAM_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class RootPlan:
    name: str
    contents: str
    """A digest of all that goes into it."""
    python: root_layout.Python
    layout: Layout
    fetch: Callable[[], image_wheels.Wheels]
    options: tuple[str, ...]
    """What pip is told besides."""


class RootState(NamedTuple):
    """How a root is, as the doctor says it."""

    status: Literal["wrong", "note", "ok"]
    """For a root that is missing, stale or current."""
    found: str
    command: str = ""
    """What makes it current."""


def build(
    kind: Kind = "data",
    *,
    tag: str | None = None,
    requirements: Path | None = None,
    force: bool = False,
    progress: Say = print,
) -> str:
    """Make a root unless it is there with the same contents, and return its name.

    It is named as the image is: `sandbox-kernel:KIND` or, with requirements, `sandbox-kernel:custom`, unless `tag` says
    otherwise. Raises `EngineError`, and `ConfigurationError` for requirements that cannot be met.
    """
    check_tag(tag)
    if KINDS[kind].has_own_root:
        name = tag or ("sandbox-kernel:custom" if requirements else f"sandbox-kernel:{kind}")
        return debian_root.build(name, kind, requirements=requirements, force=force, progress=progress)
    steps = Steps(progress)
    plan = plan_for(kind, tag, requirements, fresh=force)
    with alone(folder_of(plan.name).parent, steps):
        if not force and read(folder_of(plan.name)).get("contents") == plan.contents:
            steps(f"the environment {plan.name} is up to date")
        else:
            _make(plan, steps)
    return plan.name


def plan_for(kind: Kind, tag: str | None = None, requirements: Path | None = None, *, fresh: bool = False) -> RootPlan:
    """Say what a root of a kind is made of on this machine now. Raises `EngineError` if there is no Python for it."""
    recipes = brought("images")
    python = root_layout.find_python()
    target = root_layout.target(python)
    laid = lay_out(python, root_layout.look(python))
    kernels = [f"kernels/{name}" for name in KERNEL_FILES]
    texts = [(recipes / name).read_text() for name in (*FILES, *kernels, "pip.conf", "warm.py", "installer.lock")]
    names = KINDS[kind].locks
    locks = [image_wheels.lock_of(recipes, name, python.minor).read_text() for name in names]
    # Not what the Python maps: an update of the machine's libraries changes nothing here.
    parts = [str(RECIPE), python.version, python.tag, *(repr(astuple(value)) for value in (laid, target))]
    parts += [*PROGRAMS, *texts, *locks]
    name, fetch = f"sandbox-kernel:{kind}", partial(image_wheels.all_locked, recipes, names, target)
    options: tuple[str, ...] = ("--require-hashes",)
    if requirements is not None:
        identity, resolve = index.requirements(requirements)
        parts.append(identity)
        fetch = partial(with_more, fetch, partial(resolve, recipes, target=target, fresh=fresh))
        name, options = "sandbox-kernel:custom", ()
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return RootPlan(tag or name, f"sha256:{digest}", python, laid, fetch, options)


def state(name: str) -> RootState:
    """Say whether the root that an engine takes is there, and made of what this version would take."""
    kind = BY_NAME.get(name)
    command = build_command(name, "bubblewrap")
    command = f"`{command}`" if command else "name the folder of a root that is there"
    try:
        root = find_root(name)
    except ImageMissing:
        return RootState("wrong", f"{name} is missing", command)
    except EngineError as error:
        return RootState("note", f"{name} is stale: {error.message}", command)
    text = f"{name}, {format_bytes(root.size_bytes)}, made {root.made}"
    if "tree" in read(Path(root.folder)):
        return RootState("ok", f"{text}, {_tree_state(kind, root.contents)}")
    if kind is None:
        return RootState("ok", text)
    try:
        plan = plan_for(kind)
    except EngineError as error:
        return RootState("note", f"{text}, stale: {error.message}", command)
    if root.contents != plan.contents:
        return RootState("note", f"{text}, stale: today's would differ, for Python {plan.python.version}", command)
    return RootState("ok", f"{text}, current")


def _tree_state(kind: Kind | None, contents: str) -> str:
    """Say where a root's files are from; who made a root of an image or of Debian's packages knows what is current."""
    if kind is not None and KINDS[kind].has_own_root and contents == debian_root.contents(kind):
        return "current"
    return "from an image"


# --- making one -------------------------------------------------------------------------------------------------------


def _make(plan: RootPlan, steps: Steps) -> None:
    python = plan.python
    steps(f"making the environment {plan.name} for Python {python.version}, {python.executable}")
    with steps.during(f"fetching the wheels of {plan.name}, as far as they are not here"):
        ready = plan.fetch()
    with new_generation(plan.name, plan.contents) as made:
        for name in ("bin", "env", "home", "empty"):
            (made.path / name).mkdir()
        copied = copy_programs(made.path / "bin", Path(plan.layout.python))
        with steps.during(f"installing {len(ready.files) - 1} wheels, offline, beside {copied} programs"):
            _install(made.path / "env", plan, ready)
        add(brought("images"), made.path / "env", made.path / "home")
        with steps.during("compiling the packages"):
            _compile(made.path / "env", python)
        with steps.during("preparing caches, in a sandbox"):
            _warm(made, plan, steps)
        made.said["binds"] = [[made.within(source), inside] for source, inside in plan.layout.binds]
        made.said["links"] = plan.layout.links
        made.said["environment"] = dict(plan.layout.environment)
    size = format_bytes(read(made.path.parent)["size_bytes"])
    steps(f"the environment {plan.name} is ready: {size} in {made.path}")


def copy_programs(folder: Path, python: Path) -> int:
    """Copy the programs that cells may call, as far as this machine has them, and return how many that are."""
    copies: dict[Path, Path] = {}
    for name in PROGRAMS:
        source = next((path for path in (Path("/usr/bin", name), Path("/bin", name)) if path.exists()), None)
        if source is None or not os.access(source, os.R_OK):
            continue
        source = source.resolve()
        if source in copies:  # one program may have many names, and look at which it was called by
            (folder / name).hardlink_to(copies[source])
        elif source.is_file() and source.stat().st_size <= LARGEST_PROGRAM_BYTES:
            copies[source] = folder / name
            shutil.copyfile(source, folder / name)
            (folder / name).chmod(0o755)
    if python.parent == Path("/usr/bin"):
        (folder / python.name).touch()  # the machine's own lies over it
        (folder / "python3").symlink_to(python.name)
    return len(list(folder.iterdir()))


def _install(environment: Path, plan: RootPlan, ready: image_wheels.Wheels) -> None:
    """Have pip install wheels into an environment, in a run of its own: a second one would run what a package brings.

    Raises `EngineError`.
    """
    *files, pip = ready.files
    programs = environment / "bin"
    programs.mkdir()
    executable = Path(plan.python.executable)
    configuration = environment / "pyvenv.cfg"
    (programs / "python3").symlink_to(executable)
    text = f"include-system-site-packages = false\nversion = {plan.python.version}\n"
    configuration.write_text(f"home = {executable.parent}\n{text}")
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as place:
        here = Path(place)
        (here / "wheels").mkdir()
        for file in files:
            (here / "wheels" / file.name).symlink_to(file)
        (here / "requirements.txt").write_text(ready.requirements)
        command = [str(programs / "python3"), "-I", f"{pip}/pip", "install", "--no-index", "--find-links=wheels"]
        command += ["--only-binary=:all:", "--no-deps", "--no-compile", "--no-cache-dir", *plan.options]
        command += ["--quiet", "--root-user-action=ignore", "--disable-pip-version-check", "--no-warn-script-location"]
        run_step([*command, "-r", "requirements.txt"], here, "pip cannot install the packages")
    # Inside, all this lies elsewhere, and the machine's own packages are not there: what a cell's pip installs is.
    text = text.replace("false", "true")
    configuration.write_text(f"home = {Path(plan.layout.python).parent}\n{text}")
    _point_at(f"{ENVIRONMENT}/bin/python3", programs, str(programs / "python3"))
    (programs / "python3").unlink()
    (programs / "python3").symlink_to(plan.layout.python)
    (programs / "python").symlink_to("python3")
    for tests in [path for path in environment.glob("lib/**/tests") if path.is_dir() and not path.is_symlink()]:
        shutil.rmtree(tests, ignore_errors=True)


def _point_at(python: str, programs: Path, before: str) -> None:
    """Have the scripts of packages begin with the Python that they will find."""
    for path in programs.iterdir():
        if path.is_symlink() or not path.is_file():
            continue
        first, newline, rest = path.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and before.encode() in first:
            path.write_bytes(b"#!" + python.encode() + newline + rest)
        elif before.encode() in rest[:200]:  # a path that is too long for a first line is in the third
            path.write_bytes(b"#!" + python.encode() + b"\n" + rest.partition(b"'''\n")[2])


def _compile(environment: Path, python: root_layout.Python) -> None:
    """Write the bytecode of the packages: a sandbox cannot keep it, and names files as it finds them."""
    command = [python.executable, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0"]
    command += [
        "-s",
        str(environment),
        "-p",
        ENVIRONMENT,
        str(environment / "lib"),
        str(environment / "share" / "jupyter"),
    ]
    run_step(command, Path("/"), "", check=False)  # a few packages ship files for other versions, which do not compile


def _warm(made: Generation, plan: RootPlan, steps: Steps) -> None:
    """Fill the home's caches in a sandbox, with all else read-only; without one, each session does it for itself."""
    bwrap = bubblewrap_program()
    if bwrap is None:
        steps("  left out: there is no bwrap here")
        return
    command = [bwrap, "--unshare-all", "--unshare-user", "--new-session", "--die-with-parent", "--clearenv"]
    for source, inside in plan.layout.binds:
        option = "--bind" if inside == HOME else "--ro-bind"
        command += [option, source if source.startswith("/") else str(made.path / source), inside]
    for source, inside in plan.layout.links:
        command += ["--symlink", source, inside]
    for name, value in (*plan.layout.environment, ("HOME", HOME)):
        command += ["--setenv", name, value]
    recipe = "/opt/sandbox/warm.py"
    shipped = made.path / "shipped.json"
    shipped.write_text(json.dumps(shipping.sources()), encoding="utf-8")
    shipped.chmod(0o644)
    command += ["--ro-bind", str(shipped), "/opt/sandbox/shipped.json"]
    command += ["--ro-bind", str(brought("images") / "warm.py"), recipe, "--dev", "/dev"]
    command += ["--proc", "/proc"] if has_own_proc() else []
    command += ["--tmpfs", "/tmp", "--chdir", "/"]  # noqa: S108 -- the sandbox's own
    home = made.path / "home"
    with lent(home) as user:
        try:
            run_step(
                [*command, "python3", "-I", recipe], Path("/"), "it does not start", seconds=WARM_SECONDS, user=user
            )
        except EngineError as error:  # namespaces may be forbidden where a root is made, and not where it is used
            steps(f"  left out: {error.message}")
    shipped.unlink()
