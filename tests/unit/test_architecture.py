"""The shape of the package: who imports whom, and what must start fast or run inside imports little."""

from __future__ import annotations

import ast
import functools
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable
from importlib import import_module
from pathlib import Path

import pytest

from sandbox_kernel.core.model import Limits, SandboxSpec
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.docker.container import ENGINE_EMPTY
from tests.support import ROOT, sources
from tests.support.cases import each

PACKAGE = ROOT / "sandbox_kernel"
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.name != "__init__.py"
)
ROOMS = sorted(str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
SHIPPED = (
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
    ),
    *(
        "kernelspecs",
        "agent",
        "flow",
        "start",
        "kernel_launcher",
    ),
)
"""What runs in the container; each imports those before it."""
TOPS = ("sandbox_kernel", "tests", "fuzz", "benchmarks", "images")
HEAVY = ("docker", "jupyter_client", "nh3", "requests", "traitlets", "zmq")

BREACHES = {
    "layers": ("policy/json_check.py", "from ..session import agent_link"),
    "entry-points": ("setup/install.py", "from ..kernel import proxy"),
    "nucleus": ("setup/install.py", "from ..plugins.verify import examination_report"),
    "plugins": ("plugins/qemu/engine.py", "from ..bubblewrap import launch"),
    "wires": ("plugins/serve/librechat/cells.py", "from ..e2b import folders"),
    "seam": ("setup/install.py", "from ..engines.docker import engine"),
    "client": ("engines/docker/engine.py", "import docker"),
    "shipped": ("engines/attestation.py", "from ..container import agent_report"),
    "acyclic": ("files/file_rules.py", "from . import folder_sync"),
    "public": ("plugins/record/keys.py", "from ...session import session"),
    "low": ("plugins/index.py", "from ..files import names"),
}
"""For each contract, a file and a line that breaks it."""


def path_of(module: str) -> Path:
    return PACKAGE.joinpath(*module.split(".")).with_suffix(".py")


@functools.cache
def source_of(module: str) -> str:
    return path_of(module).read_text(encoding="utf-8")


def nodes_of(module: str) -> list[ast.AST]:
    return sources.nodes_of(path_of(module))


def contracts(folder: Path, *wanted: str) -> subprocess.CompletedProcess[str]:
    """Hold the package in `folder` against the contracts of pyproject.toml."""
    program = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    chosen = [word for name in wanted for word in ("--contract", name)]
    command = [sys.executable, "-P", "-c", program, "--no-cache", "--no-logo", *chosen]
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is, which passes: who changes it puts it back."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(PACKAGE, folder / "sandbox_kernel", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    done = contracts(folder)
    assert (done.returncode, f"{len(BREACHES)} kept, 0 broken" in done.stdout) == (0, True), done.stdout
    return folder


@pytest.mark.slow
def test_the_rooms_import_as_the_contracts_say() -> None:
    done = contracts(ROOT)
    assert done.returncode == 0, done.stdout


def test_each_contract_has_a_breach() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {one["id"] for one in settings["tool"]["importlinter"]["contracts"]} == set(BREACHES)


@pytest.mark.long
@pytest.mark.parametrize("contract", BREACHES)
def test_a_breach_of_a_contract_is_seen(contract: str, copied: Path) -> None:
    """The control: the same package with one more line does not pass."""
    file, line = BREACHES[contract]
    path = copied / "sandbox_kernel" / file
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n{line}\n", encoding="utf-8")
    try:
        done = contracts(copied, contract)
    finally:
        path.write_text(before, encoding="utf-8")
    assert (done.returncode, "0 kept, 1 broken" in done.stdout) == (1, True), done.stdout


def test_what_plugins_may_import_says_so_and_they_do() -> None:
    """Whoever changes a module knows from its docstring who else it is for."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (ignored,) = (one["ignore_imports"] for one in contracts if one["id"] == "public")
    named = {line.split(" -> ")[1].removeprefix("sandbox_kernel.") for line in ignored if not line.endswith("*")}
    said = {module for module in MODULES if "\n\nPublic: plugins may import it." in source_of(module).split('"""')[1]}
    assert said == named
    lines = "\n".join(source_of(module) for module in MODULES if module.startswith("plugins."))
    unused = [one for one in named if not re.search(rf"\.{one}\b|\.{one.replace('.', r' import (?:.*, )?')}\b", lines)]
    assert unused == []


@each("room", ROOMS)
def test_a_room_says_what_is_in_it(room: str) -> None:
    """Whoever opens a folder reads one sentence on each module; a module without one is not finished."""
    said = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    there = {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}
    assert sorted(re.findall(r"^- `(\w+)`: \S", said, re.MULTILINE)) == sorted(there)


def test_the_tree_of_the_architecture_has_a_line_for_each_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    described = re.findall(r"^      (\w+)/ +\S", text, re.MULTILINE)
    assert sorted(described) == [room for room in ROOMS if "/" not in room]


@each("module", SHIPPED)
def test_what_is_shipped_imports_the_standard_library_and_itself(module: str) -> None:
    """Any image with Python and ipykernel must do."""
    others = {"ipykernel"} if module == "kernel_launcher" else set()
    allowed = set(sys.stdlib_module_names) | others
    before = set(SHIPPED[: SHIPPED.index(module)])
    for node in ast.walk(ast.parse(path_of(f"container.{module}").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1
            assert {node.module} <= before if node.module else {alias.name for alias in node.names} <= before
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in allowed


def test_all_that_is_in_the_container_s_room_is_shipped() -> None:
    assert sorted(SHIPPED) == sorted(
        path.stem for path in (PACKAGE / "container").glob("*.py") if path.stem != "__init__"
    )


@each("module", SHIPPED)
def test_what_is_shipped_is_written_for_an_old_python(module: str) -> None:
    ast.parse(path_of(f"container.{module}").read_text(encoding="utf-8"), feature_version=(3, 9))


INSIDE = [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.glob("plugins/*/inside/*.py"))]
OWN_IMAGE = "plugins/wasm/"
"""What it ships becomes a part of an image with one Python and its packages."""


@each("path", [path for path in INSIDE if not path.startswith(OWN_IMAGE)])
def test_what_a_plugin_ships_is_written_for_any_image_too(path: str) -> None:
    found = ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"), feature_version=(3, 9)))
    names = {alias.name for node in found if isinstance(node, ast.Import) for alias in node.names}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def ownerless(nodes: Collection[ast.AST]) -> list[str]:
    """Return the calls that start a task and do not keep it in a local variable, for somebody who waits for it."""
    kept = {
        id(node.value)
        for node in nodes
        if (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)) or isinstance(node, ast.NamedExpr)
    }
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    starts = [call for call in calls if _called(call.func) in {"create_task", "ensure_future"}]
    return [ast.unparse(call) for call in starts if id(call) not in kept]


@each("module", sorted(set(MODULES) - {"core.tasks"}))
def test_a_task_that_nobody_waits_for_has_an_owner(module: str) -> None:
    """`core.tasks` holds it, hears of its faults and ends it."""
    assert ownerless(nodes_of(module)) == []


@pytest.mark.parametrize("line", ["asyncio.create_task(work())", "self.task = loop.create_task(work())"])
def test_control_a_task_without_an_owner_is_seen(line: str) -> None:
    assert ownerless([*ast.walk(ast.parse(line))])
    assert not ownerless([*ast.walk(ast.parse("task = asyncio.create_task(work())"))])


def written_elsewhere(source: str) -> list[str]:
    """Return where a module writes an attribute of anything but `self`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            owner = ast.unparse(node.value)
            if owner != "self" and node.attr != "survived":  # an error learns what is left while it is raised
                found.append(f"{node.lineno}: {owner}.{node.attr}")
    return found


@each("module", [module for module in MODULES if re.match(r"session\.(?!serving\.)", module)])
def test_nobody_in_a_session_writes_another_s_attributes(module: str) -> None:
    """Methods say what happens; so what an object may become can be read in its own class.

    A request is a record: what becomes of it can be read in the machine that decides, and in the queue.
    """
    own = ": request." if module in ("session.requests.machine", "session.requests.queue") else "\0"
    assert [line for line in written_elsewhere(path_of(module).read_text(encoding="utf-8")) if own not in line] == []


def test_control_a_write_to_another_s_attribute_is_seen() -> None:
    assert written_elsewhere(
        "class A:\n    def b(self, c):\n        self.d = 1\n        c.e = 2\n        self.d.f += 3"
    ) == [
        "4: c.e",
        "5: self.d.f",
    ]


def modules_after(*statements: str) -> set[str]:
    """Return the names in `sys.modules` of a new interpreter that ran `statements`."""
    code = "\n".join((*statements, "import json, sys", "print(json.dumps(list(sys.modules)))"))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    return set(json.loads(done.stdout))


def named(text: str) -> set[str]:
    """Return the dotted names of the package in a text, also those of an import."""
    found = set(re.findall(r"\bsandbox_kernel(?:\.(?!__|json\b)\w+)+", text))
    imports = re.findall(r"\bfrom (sandbox_kernel[\w.]*) import (\w+(?:(?:, | as )\w+)*)", text)
    return found | {f"{place}.{name.split()[0]}" for place, names in imports for name in names.split(", ")}


@functools.cache
def is_there(name: str) -> bool:
    """Return whether a dotted name is a module, a package, or something that one of them defines."""
    place, *rest = ROOT, *name.split(".")
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    module = ".".join([*place.relative_to(ROOT).parts, *rest[:1]])
    if module.removeprefix("sandbox_kernel.") in MODULES:  # what it imports may not be installed
        return all(re.search(rf"\b{word}\b", source_of(module.removeprefix("sandbox_kernel."))) for word in rest[1:2])
    return not rest or hasattr(import_module(".".join(place.relative_to(ROOT).parts)), rest[0])


def scripts(text: str) -> set[str]:
    """Return how the paths end that a text has of files with Python."""
    return set(re.findall(r"(?<![\w.*{}/-])\w[\w/]*\.py\b|(?<=[}/])\w+\.py\b", text))


WRITTEN_WRONG = {"sandbox_kernel.Sandboxx", "sandbox_kernel.plugins.frameworks.nothing"}
"""By tests, on purpose."""
OF_USERS = {f"{name}.py" for name in ("PATH", "pandas", "script", "setup", "sitecustomize", "usercustomize")}
OF_USERS |= {"jupyter_server_config.py", "jupyter_sandbox_kernel_config.py"}
"""Files that the package speaks of, and does not have."""


@pytest.mark.slow
def test_a_module_that_is_named_in_a_text_is_there() -> None:
    """One is imported by its name, or mended by a test: neither a linter nor the type checker looks there."""
    texts = [path.read_text(encoding="utf-8") for top in TOPS for path in (ROOT / top).rglob("*.py")]
    texts += [(ROOT / "pyproject.toml").read_text(encoding="utf-8")]
    slow = (ROOT / "tests" / "modern" / "slow.py").read_text(encoding="utf-8")  # an import of it makes bounds longer
    texts += [f"sandbox_kernel.{module}" for module in re.findall(r'^    "([\w.]+)": \(', slow, re.MULTILINE)]
    assert {name for name in set().union(*map(named, texts)) if not is_there(name)} == WRITTEN_WRONG


def test_a_script_that_is_named_in_a_text_is_there() -> None:
    """One is run or shipped by its path."""
    ours = {f"/{path.relative_to(ROOT)}" for top in TOPS for path in (ROOT / top).rglob("*.py")}
    found = set().union(*(scripts(source_of(module)) for module in MODULES)) - OF_USERS
    assert "owner_process.py" in found
    assert {name for name in found if not any(path.endswith(f"/{name}") for path in ours)} == set()


def test_control_a_wrong_name_is_seen() -> None:
    right = """
        import_meanwhile("sandbox_kernel.kernel.proxy")
        from sandbox_kernel.engines.docker import ahead as asked, api_client
    """
    assert all(map(is_there, named(right)))
    wrong = named(right.replace("proxy", "proxies").replace("api_client", "api"))
    assert sorted(name.rpartition(".")[2] for name in wrong if not is_there(name)) == ["api", "proxies"]
    assert [is_there(f"{PACKAGE.name}.{name}") for name in ("Sandbox", "sdk.client.AsyncSandbox")] == [True, True]
    assert [is_there(f"{PACKAGE.name}.{name}") for name in ("Sandboxes", "sdk.client.Sandboxes")] == [False, False]
    assert scripts('f"{folder}/owner.py", "container/no_agent.py"') == {"owner.py", "container/no_agent.py"}


def test_importing_the_package_imports_nothing_else() -> None:
    found = modules_after("import sandbox_kernel")
    assert {name for name in found if name.startswith("sandbox_kernel")} == {"sandbox_kernel"}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["from sandbox_kernel import Sandbox", "import sandbox_kernel; sandbox_kernel.Sandbox"])
def test_a_machine_that_lacks_something_is_told_what(way: str) -> None:
    """Python takes an AttributeError for a name that is not there, and says no more. The control is such a name."""
    lacks = "import os; del os.O_PATH, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_CLOEXEC\n"
    done = subprocess.run([sys.executable, "-c", lacks + way], capture_output=True, text=True, check=False, cwd=ROOT)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: sandbox_kernel.")
    assert "module 'os' has no attribute 'O_" in last
    done = subprocess.run(
        [sys.executable, "-c", way.replace("Sandbox", "Sandbag")], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert "Sandbag" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("module", ["sandbox_kernel", "sandbox_kernel.cli", "sandbox_kernel.kernel.proxy"])
def test_on_windows_the_import_names_wsl(module: str) -> None:
    code = f"import sys; sys.platform = 'win32'; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: sandbox_kernel runs on Linux and macOS")
    assert "WSL2" in last
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, cwd=ROOT)  # the control


def test_the_start_of_a_kernel_imports_nothing_heavy() -> None:
    """Until the engine works on the container, only what asks it is imported: each of these costs 0.02 to 0.4 s."""
    found = modules_after(
        "import sandbox_kernel.__main__",
        "import sandbox_kernel.kernel.proxy",
        "from sandbox_kernel.config.sources import resolve",
        "from sandbox_kernel.engines.select import make_engine",
        "make_engine(resolve({'memory': '1G'}))",
    )
    assert "sandbox_kernel.session.session" in found
    assert {"sandbox_kernel.engines.docker.engine", "sandbox_kernel.policy.output_policy"} <= found
    of_plugins = {name.removeprefix("sandbox_kernel.plugins.") for name in found if ".plugins." in name}
    assert not {name for name in of_plugins - {"api", "index"} if name.count(".") and not name.endswith(".settings")}
    assert not found & set(HEAVY)


def test_the_engine_is_asked_before_the_kernel_imports_what_it_needs_then() -> None:
    """Both take as long. Each name here is one that takes 2 to 70 ms, and is imported while the engine works."""
    found = modules_after(
        "import sandbox_kernel.__main__, sandbox_kernel.kernel.head_start, sandbox_kernel.engines.docker.ahead",
        "from sandbox_kernel.config.sources import resolve",
        "from sandbox_kernel.engines.shipping import new_spec",
        "sandbox_kernel.engines.docker.ahead.creation(new_spec(resolve({'memory': '1G'})))",
    )
    assert "sandbox_kernel.engines.hardening" in found
    assert not found & {
        "asyncio",
        "logging",
        "orjson",
        "secrets",
        "subprocess",
        "sandbox_kernel.files.file_rules",
        *HEAVY,
    }
    assert not [name for name in found if name.startswith(("sandbox_kernel.policy", "sandbox_kernel.session"))]
    assert not [name for name in found if name.startswith("sandbox_kernel.plugins.data.") and "settings" not in name]


def test_a_kernel_process_brings_zmq_and_nothing_else_that_is_heavy() -> None:
    """jupyter_client alone took a quarter of the imports, with its managers, traitlets and tornado."""
    found = modules_after("import sandbox_kernel.kernel.front_sockets, sandbox_kernel.kernel.proxy")
    assert "zmq" in found
    assert not found & {*HEAVY, "tornado", "dateutil", "curses"} - {"zmq"}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "compiled"), [("", True), ("main(['ps', '--engine', 'unix:///none'])", False)])
def test_a_command_compiles_no_grammar_of_a_format_that_nobody_checks(
    tmp_path: Path, first: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jsonschema takes a second for it wherever its package is; before a command begins, there is none."""
    (tmp_path / "rfc3987_syntax.py").write_text("import lark_of_the_test\ndef is_valid_syntax(*_): return False")
    (tmp_path / "lark_of_the_test.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    after = "try: import rfc3987_syntax\nexcept ImportError: pass"
    found = modules_after("from sandbox_kernel.cli import main", first, after, "import jsonschema")
    assert "jsonschema" in found
    assert ("lark_of_the_test" in found) == compiled


def words_of(document: object) -> set[str]:
    """Return the names of the fields in a document, wherever they stand."""
    if isinstance(document, dict):
        return {name for name in document if name.isalpha()}.union(*map(words_of, document.values()))
    return set().union(*map(words_of, document)) if isinstance(document, list) else set()


@functools.cache
def words_of_the_engine() -> set[str]:
    spec = SandboxSpec(session_id="s", image="i", limits=Limits(), command=("c",), uid=1, runtime="r")
    words = words_of(container_arguments(spec)) | {*ENGINE_EMPTY, "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"}
    return words - {"Image", "User", "Name", "Type", "Memory", "Config", "Test", "Links"}  # of other documents as well


def engine_words(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the words of Docker's documents that stand in a module as texts."""
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return words_of_the_engine() & texts


@pytest.mark.slow
@each("module", [module for module in MODULES if not module.startswith(("engines.docker.", "plugins.podman."))])
def test_an_engine_s_words_end_in_its_folder(module: str) -> None:
    """Podman answers Docker's calls with Docker's documents."""
    assert engine_words(nodes_of(module)) == set()


def test_control_an_engine_s_word_is_seen() -> None:
    assert engine_words(ast.walk(ast.parse('host = found["HostConfig"]'))) == {"HostConfig"}
    assert engine_words(nodes_of("engines.docker.arguments"))


# --- the tests themselves --------------------------------------------------------------------------------------------


def test_tests_lie_in_folders_by_what_they_need() -> None:
    tests = ROOT / "tests"
    assert {path.name for path in tests.glob("*.py")} == {"__init__.py", "conftest.py"}
    said = ast.get_docstring(ast.parse((tests / "__init__.py").read_text(encoding="utf-8"))) or ""
    there = {path.parent.relative_to(tests).parts[0] for path in tests.rglob("test_*.py")}
    assert sorted(re.findall(r"^- `(\w+)`: \S", said, re.MULTILINE)) == sorted(there)


ABOUT_PLUGINS = {"test_answer_allowance.py", "test_architecture.py"}
"""Unit tests that name a plugin although they are not among its own: they compare several parts of the package."""


def test_unit_tests_of_the_nucleus_need_no_plugin() -> None:
    """Those of a plugin lie in `tests/plugins`, so they go with its folder."""
    found = {
        path.name
        for path in (ROOT / "tests" / "unit").rglob("*.py")
        if re.search(r"sandbox_kernel\.plugins\.(?!api|index)\w", path.read_text(encoding="utf-8"))
        or re.search(r'"plugins/\w+/', path.read_text(encoding="utf-8"))
    }
    assert found == ABOUT_PLUGINS


IMPORT_ALL = """
import importlib, pkgutil, benchmarks, fuzz
for package in (benchmarks, fuzz):
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not one.name.endswith("__main__"):
            importlib.import_module(one.name)
            print(one.name)
"""


@pytest.mark.slow
def test_benchmarks_and_fuzzers_import_what_is_there() -> None:
    """The type checker does not read them: a module of the package that went was missed only when they ran."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"benchmarks.record", "fuzz.judge"} <= set(done.stdout.split())


WALL_CLOCK = re.compile(r"asyncio\.(?:timeout|wait_for)\(")
EXPECTED_TO_RUN_OUT = {
    "plugins/serve/container/test_web_server.py",
    "support/patience.py",
    "plugins/batch/unit/test_run_parts.py",
}
"""Files with a bound that is meant to run out: no load makes them fail."""


def test_bounds_of_tests_count_what_the_machine_had_to_give() -> None:
    """A bound by the wall clock fails beside load, although nothing is wrong: `within` is the tests' own."""
    tests = ROOT / "tests"
    found = {path for path in tests.rglob("*.py") if WALL_CLOCK.search(path.read_text(encoding="utf-8"))}
    assert {str(path.relative_to(tests)) for path in found} == EXPECTED_TO_RUN_OUT


def test_no_parser_of_ours_guesses_at_the_beginning_of_an_option() -> None:
    """Some hand what they do not know on, as settings: `--engine docker` was taken for `--engines` of benchmarks.

    All parsers in all Python files are looked at, so none is left that could take one option for another.
    """
    folders = ("benchmarks", "fuzz", "images", "notebooks", "sandbox_kernel", "tests")
    texts = {path: path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py")}
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}": {keyword.arg: keyword.value for keyword in node.keywords}
        for path, text in texts.items()
        if "node_modules" not in path.parts and re.search(r"Parser\(|add_parser\(", text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _called(node.func) in {"ArgumentParser", "Parser", "add_parser"}
    }
    assert len(found) > 10
    guesses = [place for place, given in found.items() if not _is_false(given.get("allow_abbrev"))]
    assert guesses == []


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
