"""The wheel, in an environment of its own: what it declares and brings along is enough, far away from a checkout.

Nothing is fetched. The packages that the wheel asks for are linked out of the environment of the tests; one that it
does not ask for is not there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import jsonschema
import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sandbox_kernel import __version__

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").is_file())
BROUGHT = ("docs", "images", "kernelspec", "system")
KERNEL_CELL = """
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="sandbox-python")
try:
    reply = client.execute_interactive("print(6 * 7, __import__('socket').gethostname())", timeout=60)
finally:
    client.stop_channels()
    manager.shutdown_kernel()
sys.exit(reply["content"]["status"] != "ok")
"""
OF_A_RUN = "import json; from sandbox_kernel.plugins.batch.run_report import schema; print(json.dumps(schema()))"
OF_AN_EXAMINATION = (
    "import json; from sandbox_kernel.plugins.verify.examination_report import schema; print(json.dumps(schema()))"
)


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel, and an empty folder to stand in."""

    prefix: Path
    folder: Path

    @property
    def site(self) -> Path:
        [found] = self.prefix.glob("lib/python3*/site-packages")
        return found

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment with the few variables that a person has."""
        program, *arguments = command
        kept = {name: value for name, value in os.environ.items() if name in ("DOCKER_HOST", "PATH", "LANG")}
        return subprocess.run(
            [self.prefix / "bin" / program, *arguments], cwd=self.folder, env={**kept, "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=170, check=False,
        )  # fmt: skip

    def fine(self, *command: str | Path) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def link_requirements(site: Path, extras: set[str]) -> None:
    """Link what the wheel requires with `extras`, and what that requires, and nothing else."""
    [own] = metadata.distributions(name="sandbox-kernel", path=[str(site)])
    todo = [(requirement, extras) for requirement in own.requires or ()]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        text, chosen = todo.pop()
        wanted = Requirement(text)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in {"", *chosen}):
            continue
        if (key := (canonicalize_name(wanted.name), frozenset(wanted.extras))) in seen:
            continue
        seen.add(key)
        found = metadata.distribution(wanted.name)
        todo += [(requirement, set(wanted.extras)) for requirement in found.requires or ()]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (site / top).is_symlink():
                (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what a checkout has."""
    source, built = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30)
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", built, source], check=True, timeout=120)
    [found] = built.iterdir()
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel alone, as `pip install` leaves it."""
    prefix = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True, timeout=60)
    made = Environment(prefix, tmp_path_factory.mktemp("elsewhere"))
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", "--quiet", "--no-warn-script-location"]
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", prefix / "bin" / "python"]
    subprocess.run([*pip, "install", *options, wheel], check=True, timeout=120)
    link_requirements(made.site, set())
    return made


@pytest.fixture(scope="module")
def for_runs(environment: Environment) -> Environment:
    """The same with the extra for batch runs."""
    link_requirements(environment.site, {"run"})
    return environment


# --- what is in it ---------------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_and_what_it_brings_along(wheel: Path) -> None:
    """Every file of the package, the images' recipes, the kernelspec, and a file that Jupyter Server reads."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30)
    names = {name for name in os.fsdecode(listed.stdout).split("\0") if (ROOT / name).is_file()}
    package = {name for name in names if name.startswith("sandbox_kernel/")}
    brought = {f"sandbox_kernel/resources/{name}" for name in names if name.startswith(tuple(f"{n}/" for n in BROUGHT))}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {"sandbox_kernel/plugins/batch/report.schema.json", "sandbox_kernel/py.typed"} <= package
    assert len(brought) >= 12
    data = f"sandbox_kernel-{__version__}.data/data"
    built = "labextension/built/"
    extension = {name.removeprefix(built) for name in names if name.startswith(f"{built}sandbox-kernel/")}
    assert len(extension) >= 5
    shared = {f"{data}/share/jupyter/labextensions/{name}" for name in extension | {"sandbox-kernel/install.json"}}
    wall = f"{data}/etc/jupyter/jupyter_server_config.d/sandbox_kernel.json"
    assert held == package | brought | shared | {wall}


def test_nothing_of_the_checkout_is_within_reach(environment: Environment) -> None:
    """The control of all that follows: the package is that of the environment, and the tests' own tools are missing."""
    where = environment.fine("python", "-c", "import sandbox_kernel; print(sandbox_kernel.__file__)")
    assert Path(where.strip()).is_relative_to(environment.prefix)
    assert not [path for path in environment.fine("python", "-m", "site").splitlines() if str(ROOT) in path]
    assert "No module named 'pytest'" in environment.run("python", "-c", "import pytest").stderr


def test_what_the_wheel_requires_is_what_its_modules_import(environment: Environment) -> None:
    """Every module that needs no extra can be imported, in an environment that holds nothing else."""
    program = (
        "import importlib, pkgutil, sandbox_kernel\n"
        "extras = 'sandbox_kernel.' + 'plugins.batch.executed_notebook plugins.batch.run plugins.batch.source_notebook "
        "plugins.batch.answers plugins.batch.risk plugins.wasm.machine plugins.wasm.checkpoints plugins.wasm.inside. "
        "plugins.mcp. plugins.serve. plugins.frameworks. plugins.kubernetes. plugins.network.tls "
        "plugins.screen.language_server plugins.network.secrets plugins.browser_policy.extension'"
        ".replace(' ', ' sandbox_kernel.')\n"
        "skipped = tuple(extras.split()) + ('sandbox_kernel.container.',)\n"
        "names = [one.name for one in pkgutil.walk_packages(sandbox_kernel.__path__, 'sandbox_kernel.')]\n"
        "names = [name for name in names if not name.startswith(skipped) and not name.endswith('__main__')]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names))\n"
    )
    assert int(environment.fine("python", "-c", program)) > 80


def test_jupyter_server_finds_the_second_wall(environment: Environment) -> None:
    """The file is where a server of this environment looks, and names a module that is there."""
    [path] = environment.prefix.glob("etc/jupyter/jupyter_server_config.d/*.json")
    [name] = json.loads(path.read_text())["ServerApp"]["jpserver_extensions"]
    assert (environment.site / (name.replace(".", "/") + ".py")).is_file()


def test_jupyterlab_finds_the_extension(environment: Environment) -> None:
    """It lies where JupyterLab and Notebook 7 look for what is on at once, and the start that it names is there."""
    [path] = environment.prefix.glob("share/jupyter/labextensions/*/install.json")
    package = json.loads((path.parent / "package.json").read_text())
    assert package["name"] == path.parent.name == "sandbox-kernel"
    assert (path.parent / package["jupyterlab"]["_build"]["load"]).is_file()


# --- what people do with it ------------------------------------------------------------------------------------------


def test_version_and_help(environment: Environment) -> None:
    assert environment.fine("sandbox-kernel", "--version") == f"sandbox-kernel {__version__}\n"
    assert "Getting ready:" in environment.fine("sandbox-kernel", "--help")
    assert "#compdef sandbox-kernel" in environment.fine("sandbox-kernel", "completion", "zsh")


def test_setup_and_a_cell_of_a_front_end(environment: Environment) -> None:
    """`setup` recognises the image as its own and installs the kernel, and a client of Jupyter's runs a cell on it."""
    said = environment.fine("sandbox-kernel", "setup", "--yes")
    assert f"kernelspec  {environment.prefix}/share/jupyter/kernels/sandbox-python" in said
    assert "everything a session needs is there" in said
    shown = environment.fine("python", "-c", KERNEL_CELL)
    assert re.fullmatch(r"42 \w+\n", shown)


def test_doctor(environment: Environment) -> None:
    """It finds a kernel of this environment and all that a session needs, up to a first cell."""
    environment.fine("sandbox-kernel", "install", "--sys-prefix", "--name", "of-the-wheel", "--memory", "1G")
    said = json.loads(environment.fine("sandbox-kernel", "doctor", "--json", "--name", "of-the-wheel"))
    assert said["ok"] is True
    [spec] = [row for row in said["checks"] if row["name"] == "kernelspec"]
    assert spec["status"] == "ok", spec


@pytest.mark.long
def test_verify(environment: Environment) -> None:
    """Nothing gets out of sandboxes as they are, tried without a checkout; the report keeps to the wheel's schema."""
    settings = ["--image", "sandbox-kernel:base", "--memory", "512M", "--network", "files.test"]
    said = json.loads(environment.fine("sandbox-kernel", "verify", "--format", "json", *settings))
    verdicts = {one["code"]: one["verdict"] for one in said["findings"]}
    assert {code for code, verdict in verdicts.items() if verdict != "pass"} == {"technology-kernel"}
    assert verdicts["technology-kernel"] == "not-applicable"
    assert (len(verdicts) > 60, said["exit"]) == (True, 0)
    jsonschema.validate(said, json.loads(environment.fine("python", "-c", OF_AN_EXAMINATION)))


def test_install_below_a_prefix(environment: Environment, tmp_path: Path) -> None:
    environment.fine("sandbox-kernel", "install", "--prefix", tmp_path, "--cpus", "1")
    folder = tmp_path / "share" / "jupyter" / "kernels" / "sandbox-python"
    assert {path.name for path in folder.iterdir()} == {path.name for path in (ROOT / "kernelspec").iterdir()}
    argv = json.loads((folder / "kernel.json").read_text())["argv"]
    assert argv[0] == str(environment.prefix / "bin" / "python")
    assert argv[-1] == "--cpus=1"


@pytest.mark.long
def test_the_demo_notebook(for_runs: Environment) -> None:
    """Copied out of the checkout with its data, it runs to its end, and the report keeps to the schema of the wheel."""
    folder = for_runs.folder
    shutil.copy(ROOT / "notebooks" / "quickstart.ipynb", folder)
    inputs = []
    for name in ("airlines.csv", "flights.csv.gz", "weather.csv"):
        shutil.copy(ROOT / "notebooks" / "data" / name, folder)
        inputs += ["--input", name]
    command = ["run", "quickstart.ipynb", *inputs, "--output", "results", "--report", "report.json"]
    for_runs.fine("sandbox-kernel", *command)
    cells = [one for one in nbformat.read(folder / "results" / "quickstart.ipynb", 4).cells if one.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    made = {path.name for path in (folder / "results" / "files").iterdir()}
    assert {"weather_summary.csv", "carrier_summary.csv", "delays.png"} <= made
    jsonschema.validate(
        json.loads((folder / "report.json").read_text()), json.loads(for_runs.fine("python", "-c", OF_A_RUN))
    )


def test_the_pages_that_errors_name_come_along(environment: Environment) -> None:
    done = environment.run("sandbox-kernel", "docs", "docs/outputs.md")
    assert (done.returncode, done.stdout) == (0, (ROOT / "docs" / "outputs.md").read_text(encoding="utf-8"))
    listed = environment.run("sandbox-kernel", "docs").stdout.splitlines()
    assert [line.split()[0] for line in listed] == sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
    assert environment.run("sandbox-kernel", "docs", "limit").returncode == 2


# --- and without what it brings along --------------------------------------------------------------------------------

NEEDED = {
    "images": (("sandbox-kernel", "setup"), "lacks its folder 'images'"),
    "kernelspec": (("sandbox-kernel", "install", "--sys-prefix"), "lacks its folder 'kernelspec'"),
}


@pytest.mark.parametrize("name", NEEDED)
def test_an_installation_that_lacks_a_folder_says_so(name: str, environment: Environment) -> None:
    """The control: these folders are what the commands above used, and none of a checkout stood in for them."""
    folder = environment.site / "sandbox_kernel" / "resources" / name
    command, reason = NEEDED[name]
    folder.rename(folder.with_name("away"))
    try:
        done = environment.run(*command)
    finally:
        folder.with_name("away").rename(folder)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())
