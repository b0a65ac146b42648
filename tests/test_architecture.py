"""The shape of the package: imports point upward in one list, and what must start fast or run inside imports little."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sandbox_kernel"

ORDER = """
    errors model wire weight protocol
    policy.verdict policy.plain policy.terminal policy.tex_words policy.tex policy.css policy.blocks policy.frame
    policy.raster policy.media policy.svg_cost policy.svg policy.html policy.markdown policy.mime policy.budget
    policy.page policy.widget_table policy.widget_models policy.widget_bytes policy.widget_rules
    policy.widget_views policy.widgets policy.replies policy.outputs policy
    shown
    names ways places grounds audit files scratch transfer folders
    engines engines.base engines.seccomp engines.hardening engines.attestation engines.owner engines.guard engines.http
    engines.pipe engines.docker_container engines.docker engines.refusal
    agent_messages agent_process agent_shield agent_report agent_files agent shipping
    config_values config_table config
    hints introduction agent_words link ledger delivery traffic session
    execution callbacks lifetimes client_values client_cell client_files client background blocking
    integrations integrations.answers integrations.smolagents integrations.autogen integrations.langchain
    integrations.inspect_commands integrations.inspect_ai
    batch batch.exits batch.events batch.source batch.report batch.inputs batch.notebook batch.outlet batch.progress
    batch.stopping batch.run batch.command
    keeper handover heap guests sockets file_messages overflow proxy
    machine requirements wheels image install server_extension
    browser_wall trial doctor reference
    mcp_server mcp_server.shelf mcp_server.contents mcp_server.clients mcp_server.descriptions mcp_server.tools
    mcp_server.catalogue mcp_server.service mcp_server.presence mcp_server.names
    mcp_server.connections mcp_server.http mcp_server.command
    cli __main__
""".split()  # noqa: SIM905 (a list of words reads better as words)
"""A module may import those before it. ARCHITECTURE.md describes them in the same order."""

DOWNWARD_FOR_TYPES = {("engines.docker_container", "engines.docker")}
"""Two halves of one class, in a file each; only a type checker follows this import."""

SHIPPED = ("wire", "agent_messages", "agent_process", "agent_shield", "agent_report", "agent_files", "agent")
"""What runs in the container, under these names without a package."""

MAX_LINES = 350
LONGER = {"agent": 450, "machine": 380, "session": 560, "traffic": 640}
"""Files over the limit, and how long each may be at most. A file that fits again leaves this list."""

HEAVY = ("docker", "jupyter_client", "nh3", "requests", "traitlets", "zmq")


def path_of(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def tree_of(module: str) -> ast.Module:
    return ast.parse(path_of(module).read_text(encoding="utf-8"))


def for_types_only(tree: ast.Module) -> set[ast.AST]:
    """Return what stands below an `if TYPE_CHECKING:`."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {node for block in blocks for statement in block.body for node in ast.walk(statement)}


def own_imports(module: str) -> Iterator[tuple[str, bool]]:
    """Yield the modules of this package that `module` imports, wherever in the file, and whether for types only."""
    tree = tree_of(module)
    types = for_types_only(tree)
    package = module.split(".") if path_of(module).name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, _, rest = alias.name.partition(".")
                if first == "sandbox_kernel" and rest:
                    yield rest, node in types
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
            elif (node.module or "").split(".")[0] == "sandbox_kernel":
                base = []
            else:
                continue
            inner = (node.module or "").split(".")
            base = base + [part for part in inner if part and part != "sandbox_kernel"]
            for alias in node.names:
                target = ".".join([*base, alias.name])
                found = target if target in ORDER else ".".join(base)
                if found:  # nothing is left for the version and the like, which the package itself holds
                    yield found, node in types


def foreign_imports(module: str) -> set[str]:
    """Return the first names of what `module` imports, wherever in the file."""
    names = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).split(".")[0])
    return names


def test_the_list_names_every_module_once() -> None:
    there = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for path in PACKAGE.rglob("*.py")
    } - {"__init__"}
    assert sorted(ORDER) == sorted(there)


@pytest.mark.parametrize("module", ORDER)
def test_imports_point_upward(module: str) -> None:
    above = set(ORDER[: ORDER.index(module)])
    for imported, types_only in own_imports(module):
        if types_only and (module, imported) in DOWNWARD_FOR_TYPES:
            continue
        assert imported in above, f"{module} imports {imported}, which does not stand above it"


def test_the_check_sees_every_way_to_import() -> None:
    """The control: imports that are known to be there are found, at the top, in a function, of a package, for types."""
    assert ("errors", False) in own_imports("model")
    assert ("engines.docker", False) in own_imports("config")
    assert ("engines.hardening", False) in own_imports("engines.attestation")
    assert ("model", False) in own_imports("engines.base")
    assert ("policy", False) in own_imports("traffic")
    assert ("keeper", False) in own_imports("proxy")
    assert ("sockets", True) in own_imports("proxy")
    for pair in DOWNWARD_FOR_TYPES:
        assert (pair[1], True) in own_imports(pair[0])


def test_the_architecture_describes_the_modules_in_this_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    described = re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE)
    assert described == [str(path_of(module).relative_to(PACKAGE)) for module in ORDER]


@pytest.mark.parametrize("module", SHIPPED)
def test_what_is_shipped_imports_the_standard_library_and_itself(module: str) -> None:
    """Any image with Python and ipykernel must do; pyzmq comes with ipykernel, and only the agent needs it."""
    allowed = sys.stdlib_module_names | set(SHIPPED[: SHIPPED.index(module)])
    if module == "agent":
        allowed |= {"zmq"}
    assert foreign_imports(module) <= allowed
    assert not list(own_imports(module))


@pytest.mark.parametrize("module", SHIPPED)
def test_what_is_shipped_is_written_for_an_old_python(module: str) -> None:
    ast.parse(path_of(module).read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("module", ORDER)
def test_files_can_be_read_at_one_sitting(module: str) -> None:
    lines = len(path_of(module).read_text(encoding="utf-8").splitlines())
    assert lines <= LONGER.get(module, MAX_LINES)
    assert module not in LONGER or lines > MAX_LINES, f"{module} fits now; take it off the list"


def modules_after(*statements: str) -> set[str]:
    """Return the names in `sys.modules` of a new interpreter that ran `statements`."""
    code = "\n".join((*statements, "import json, sys", "print(json.dumps(list(sys.modules)))"))
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    return set(json.loads(done.stdout))


def test_importing_the_package_imports_nothing_else() -> None:
    found = modules_after("import sandbox_kernel")
    assert {name for name in found if name.startswith("sandbox_kernel")} == {"sandbox_kernel"}


def test_the_start_of_a_kernel_imports_nothing_heavy() -> None:
    """Until the engine works on the container, only what asks it is imported: each of these costs 0.02 to 0.4 s."""
    found = modules_after(
        "import sandbox_kernel.__main__",
        "import sandbox_kernel.proxy",
        "from sandbox_kernel.config import make_engine, resolve",
        "make_engine(resolve({'memory': '1G'}))",
    )
    assert "sandbox_kernel.session" in found
    assert {"sandbox_kernel.engines.docker", "sandbox_kernel.policy.outputs"} <= found
    assert not found & set(HEAVY)


def test_the_front_door_brings_neither_the_engine_s_client_nor_the_sanitiser() -> None:
    """The sockets need jupyter_client, and with it traitlets; that is imported while the engine works."""
    found = modules_after("import sandbox_kernel.sockets, sandbox_kernel.proxy")
    assert {"zmq", "jupyter_client"} <= found
    assert not found & {"docker", "requests", "nh3"}
