"""What the documents say is so: settings, commands, paths and tests that they name exist."""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
import pytest

import sandbox_kernel
from sandbox_kernel import __version__, cli
from sandbox_kernel.cli.program import parse, parser
from sandbox_kernel.cli.subcommands import MERGED_PAGES
from sandbox_kernel.config.sources import SETTINGS
from sandbox_kernel.core import errors
from sandbox_kernel.core.codes import TABLE, Code
from sandbox_kernel.plugins import index
from sandbox_kernel.setup.install import check
from tests.support import ROOT
from tests.support.cases import each
from tests.support.pages import snippets

PAGES = tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))
DOCUMENTS = (
    *("README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"),
    *PAGES,
)

MADE_BY_MAKE = {"output/", "output/lab/"}
"""Folders that a document may name although a checkout does not hold them."""

OF_READERS = {"jupyter_sandbox_kernel_config.py", "NAME.ipynb", "notebook.ipynb", "pandas.py", "pip.py", "report.json"}
OF_READERS |= {"kernel.json", "analysis.ipynb", "requirements.txt"}
OF_READERS |= {"jupyter_server_config.py", "jupyterhub_config.py", "script.py", "stopwatch.py", "small.py", "ration.py"}
"""Files that are the reader's, and not the repository's."""

FILE = re.compile(r"`([\w.-]+(?:/[\w.-]*)*)`")
SUFFIXES = (".py", ".md", ".in", ".lock", ".ipynb", ".json", ".toml")
OWN_FOLDERS = {"benchmarks", "docs", "fuzz", "images", "kernelspec", "notebooks", "output", "sandbox_kernel", "tests"}
OWN_FOLDERS |= {path.name for path in (ROOT / "sandbox_kernel").iterdir() if path.is_dir()}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def text_files() -> tuple[Path, ...]:
    """Return what the repository holds: what git knows, or else what lies here and is not hidden."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=30)
        found = [ROOT / name for name in os.fsdecode(listed.stdout).split("\0") if name]
    except (OSError, subprocess.SubprocessError):
        found = [path for path in ROOT.rglob("*") if not re.search(r"/(\.|output/|__pycache__/)", f"/{path}")]
    return tuple(path for path in found if path.is_file() and b"\0" not in path.read_bytes()[:4096])


def indented(text: str) -> list[str]:
    """Return the lines of commands: those that begin with four spaces."""
    return [line.strip() for line in text.splitlines() if line.startswith("    ") and line.strip()]


def commands(name: str, program: str) -> list[str]:
    """Return the commands of `program` in a document: on lines of their own, and in backticks."""
    text = re.sub(r"```.*?```|\n## Not yet\n.*?(?=\n## )", "", read(name), flags=re.DOTALL)
    own = [line for line in indented(text) if line.startswith(program + " ")]
    quoted = [" ".join(found.split()) for found in re.findall(rf"`({re.escape(program)} [^`]+)`", text)]
    return own + quoted


# --- settings and commands -------------------------------------------------------------------------------------------


def test_the_page_of_settings_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.cli.subcommands.from_files", dict)  # this machine's own config files
    assert cli.main(["settings", "--markdown"]) == 0
    assert capsys.readouterr().out == read("docs/settings.md")


def test_the_page_of_codes_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["codes", "--markdown"]) == 0
    assert capsys.readouterr().out == read("docs/codes.md")


def test_the_page_of_settings_has_a_row_for_each() -> None:
    rows = [line.split(" | ") for line in read("docs/settings.md").splitlines() if line.startswith("| `")]
    named = [f"`{name}`" + f" (`{one.flag}`)" * bool(one.singular) for name, one in SETTINGS.items()]
    assert [row[0] for row in rows] == [f"| {name}" for name in named]
    assert all(one.singular or one.flag == "--" + name.replace("_", "-") for name, one in SETTINGS.items())
    assert all(len(row) == 4 and all(cell.strip(" |") for cell in row) for row in rows)


def test_links_lead_from_the_readme_to_every_page() -> None:
    reached, ahead = set[str](), ["README.md"]
    while ahead:
        name = ahead.pop()
        reached.add(name)
        links = re.findall(r"\]\(([^)\s#]+\.md)(?:#[\w-]+)?\)", read(name))
        found = {os.path.normpath(Path(name).parent / link) for link in links if "://" not in link}
        ahead += sorted(found - reached - set(ahead))
    assert set(PAGES) <= reached


def test_a_merged_page_is_found_by_the_name_that_it_had(capsys: pytest.CaptureFixture[str]) -> None:
    for old, new in MERGED_PAGES.items():
        assert (f"docs/{old}.md" in PAGES, f"docs/{new}.md" in PAGES) == (False, True), old
    assert cli.main(["docs", "docs/limits.md"]) == 0
    assert capsys.readouterr().out == read("docs/outputs.md")


KERNELS = {"chat_analysis": "python3", "files_and_limits": "sandbox-limits", "quickstart": "sandbox-python"}
"""The kernels of notebooks, by their names."""


@each(("name", "kernel"), KERNELS.items())
def test_a_notebook_is_stored_for_its_kernel_and_without_outputs(name: str, kernel: str) -> None:
    notebook = nbformat.read(ROOT / f"notebooks/{name}.ipynb", 4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == kernel
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


def sandbox_commands() -> list[str]:
    found = [line for name in DOCUMENTS for line in commands(name, "sandbox-kernel")]
    return [line for line in found if not line.endswith((" --version", " --help"))]


@pytest.fixture(scope="module")
def _checked_quickly() -> Iterator[None]:
    """Without this machine's own config files, and with one parser, which takes longer to make than a line to read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sandbox_kernel.setup.install.from_files", dict)
        patch.setattr("sandbox_kernel.cli.program.parser", cache(parser))
        yield


@each("line", sandbox_commands())
@pytest.mark.usefixtures("_checked_quickly")
def test_a_command_is_one_that_works(line: str) -> None:
    """Its name and its flags are known, and its settings pass the checks that they pass at installation."""
    options = parse(shlex.split(line.partition(" > ")[0].replace("$PWD", "/srv"))[1:])
    if options.takes_settings:
        check(options.values)


def test_the_documents_show_every_command() -> None:
    shown = {shlex.split(line)[1] for line in sandbox_commands()}
    assert shown == set(parser().commands)


@each("name", DOCUMENTS)
def test_a_target_of_make_is_there(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    assert {line.split()[1] for line in commands(name, "make")} <= targets


@each("name", DOCUMENTS)
def test_examples_are_python(name: str) -> None:
    for example in snippets(name):
        compile(example, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_reference_has_each_public_name_once() -> None:
    named = re.findall(r"^::: sandbox_kernel\.(\w+)$", read("docs/api.md"), re.MULTILINE)
    assert sorted(named) == sorted(set(sandbox_kernel.__all__) - {"__version__"})


@each("name", [name for name in DOCUMENTS if "c.SandboxKernel." in read(name)])
def test_settings_of_an_example_file_exist(name: str) -> None:
    for source in snippets(name):
        given = [line for line in ast.parse(source).body if isinstance(line, ast.Assign)]
        names = {ast.unparse(line.targets[0]): line.value for line in given}
        own = {name: value for name, value in names.items() if name.startswith("c.SandboxKernel.")}
        check({name.removeprefix("c.SandboxKernel."): ast.literal_eval(value) for name, value in own.items()})


def test_the_example_of_an_mcp_host_starts_the_server() -> None:
    [server, _] = [json.loads(source)["mcpServers"]["python"] for source in snippets("docs/mcp.md", "json")]
    assert parse(server["args"]).command == "mcp"


# --- names -----------------------------------------------------------------------------------------------------------


@cache
def headings(page: Path) -> set[str]:
    """Return the names by which links find the headings of a page."""
    titles = re.findall("^#+ (.+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@each("name", DOCUMENTS)
def test_paths_and_links_lead_somewhere(name: str) -> None:
    text = read(name)
    places = [ROOT, (ROOT / name).parent, ROOT / "sandbox_kernel"]
    for path in FILE.findall(text):
        first = path.partition("/")[0]
        ours = first in OWN_FOLDERS if "/" in path else path.endswith(SUFFIXES)
        if ours and "NAME" not in path and path not in MADE_BY_MAKE | OF_READERS:
            assert any((place / path).exists() for place in places), path
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith("https://"):
            path, _, heading = target.partition("#")
            page = (ROOT / name).parent / path if path else ROOT / name
            assert page.exists(), target
            assert not heading or heading in headings(page), target


def test_the_table_of_errors_names_real_ones_and_their_settings() -> None:
    table = read("docs/outputs.md").partition("## What may be shown")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    ends = {one.__name__ for one in errors.CellError.__subclasses__()} - {
        "ScreenBlocked",
        "CellInterrupted",
    }  # the second shows itself as KeyboardInterrupt
    assert {row[0].strip(" `") for row in rows} == ends
    for row in rows:
        assert set(re.findall(r"`(\w+)`", row[-1])) <= set(SETTINGS)


def without_fences(name: str) -> str:
    return re.sub(r"```.*?```", "", read(name), flags=re.DOTALL)


@cache
def code_table() -> tuple[Code, ...]:
    return tuple(code for codes in (TABLE | index.codes()).values() for code in codes)


QUOTED = re.compile(r"\A(?:\[sandbox_kernel\] )?([A-Z]\w+): (.+?)\.\s")
"""An error as people see it: its name, and the first sentence of what is said."""


def test_an_error_that_a_page_quotes_is_one_of_the_package() -> None:
    quoted = [
        (name, *found) for name in DOCUMENTS for block in snippets(name, "text") for found in QUOTED.findall(block)
    ]
    texts = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(code.text)) for code in code_table()]
    assert len(quoted) >= 2
    assert [row for row in quoted if not hasattr(errors, row[1]) and row[1] not in KINDS] == []
    assert [row for row in quoted if not any(re.fullmatch(text, row[2]) for text in texts)] == []


KINDS = {"NetworkDenied"}
"""What stands before a hint in place of an error's name."""

NOT_CODES = {"allowed-label-domains", "cpu-high", "memory-high", "owner-gone"}
"""An option of agent-sandbox and marks of the dashboard, which stand in parentheses as codes do."""


def test_a_code_that_a_page_names_in_parentheses_is_one_of_the_package() -> None:
    pages = [name for name in DOCUMENTS if name != "CHANGELOG.md"]
    named = {code for name in pages for code in re.findall(r"\(`([a-z]+(?:-[a-z]+)+)`[,)]", without_fences(name))}
    assert len(named) > 20
    assert named - {code.code for code in code_table()} - NOT_CODES == set()


OTHER_ERRORS = {"CatalogException", "DeadKernelError", "OutOfMemoryException"}
OTHER_ERRORS |= {"SandboxUnavailableError", "SandboxUserUnsupportedError", "StepFailed", "ToolError"}
"""Of DuckDB, nbclient, OpenAI Agents SDK, inspect_ai, our adapter for smolagents, and `sandbox_tools` in a sandbox."""


def test_an_error_that_a_page_names_is_there() -> None:
    ending = "Error|Exception|Timeout|Died|Lost|Missing|Unavailable|Failed|Refused|Exceeded|Blocked|Closed|NotThere"
    pages = [name for name in DOCUMENTS if name != "docs/e2b.md"]  # whose plugin tests its own
    named = {error for name in pages for error in re.findall(rf"`([A-Z]\w+(?:{ending}))`", without_fences(name))}
    ours = {*vars(errors), *vars(builtins), *sandbox_kernel.__all__}
    assert len(named) > 20
    assert named - ours - OTHER_ERRORS == set()


@cache
def functions(path: str) -> set[str]:
    tree = ast.walk(ast.parse(read(path)))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.slow
@each("test", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", read("docs/attacks.md") + read("docs/practice.md")))))
def test_an_attack_and_a_demand_name_a_test_that_is_there(test: str) -> None:
    path, _, function = test.partition("::")
    assert function in functions(path)


def test_every_row_of_attacks_has_a_test() -> None:
    rows = [
        line
        for line in read("docs/attacks.md").splitlines()
        if line.startswith("| ") and not line.startswith("| Attack |")
    ]
    assert len(rows) > 30
    assert [row for row in rows if "::" not in row] == []


def test_the_changelog_keeps_a_changelog_s_form() -> None:
    """That of keepachangelog.com: a version, its kinds of changes in their order, and each change once."""
    versions = re.split(r"^## ", read("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert [re.match(rf"\[(Unreleased|{__version__})\]", one) is not None for one in versions] == [True] * len(versions)
    for version in versions:
        kinds = re.findall("^### (.+)$", version, re.MULTILINE)
        order = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
        assert [one for one in order if one in kinds] == kinds
        changes = re.findall(r"^- (.+(?:\n  .+)*)", version, re.MULTILINE)
        assert len(changes) == len(set(changes))
        assert [one for one in changes if not re.search("[.)]$", one) or len(one) > 300] == []


# --- what must stand nowhere -----------------------------------------------------------------------------------------

HOSTS = re.compile(
    r"\b(?:(?:ghcr|quay|gcr|docker)[.]io/|mcr[.]microsoft[.]com|public[.]ecr[.]aws|pypi[.](?:org|python[.]org)"
    r"|pythonhosted[.]org|deb[.]debian[.]org|archive[.]ubuntu[.]com|npmjs[.](?:com|org))"
)
"""Where packages and images come from is the business of each machine."""

PLACES = re.compile(r"(?<!\w)/(?:home|Users)/(?!(?:sandbox|users?)\b)[\w.-]+/")
"""`user` is where hosted interpreters have their cells, and what sandboxes here call the same folder."""
NAME = r"sandbox[-_]kernel"
FROM_AN_INDEX = re.compile(
    r"(?:\b(?:pip|pipx|uv|conda|poetry)\b[^&|;#]*?\b(?:install|add)\b|\bpipx run\b|\buvx\b)"
    rf"[^&|;#]*?[\s'\"]{NAME}(?=[\s'\"\[=<>~!]|$)"
)
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b|\b(?:issue|pull request|PR) ?#\d")


def findings(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_repository_is_looked_at() -> None:
    names = {str(path.relative_to(ROOT)) for path in text_files()}
    assert {"README.md", "Makefile", "sandbox_kernel/container/agent.py", "images/data.lock"} <= names


@pytest.mark.slow
def test_no_host_of_packages_or_images_is_named() -> None:
    assert HOSTS.search("https://ghcr" + ".io/x")
    assert findings(HOSTS) == []


@pytest.mark.slow
def test_no_page_installs_this_package_from_an_index() -> None:
    """It is in none: whoever takes its name there runs code at every reader's."""
    assert findings(FROM_AN_INDEX) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pip install {}", True),
        ("pip install -U '{}[serve]'", True),
        ("uv tool install {}==1.0", True),
        ("pipx run {} doctor", True),
        ("uvx --from {} x", True),
        ("pip install './{}[run]'", False),
        ("pip install '.[serve]'", False),
        ("pip install ./checkout && {} setup", False),
        ("/opt/{}/bin/pip install '/source[serve]' && {} doctor", False),
    ],
)
def test_an_index_is_known_by_a_name_without_a_path(line: str, found: bool) -> None:
    for name in ("sandbox-kernel", "sandbox_kernel"):
        assert bool(FROM_AN_INDEX.search(line.replace("{}", name))) is found


@pytest.mark.slow
def test_no_folder_of_a_developer_s_machine_is_named() -> None:
    here = [re.escape(str(path)) for path in (ROOT, Path.home()) if len(path.parts) > 2]
    assert findings(re.compile("|".join([PLACES.pattern, *(f"{path}(?![\\w-])" for path in here)]))) == []


@pytest.mark.slow
def test_nothing_is_left_unfinished() -> None:
    assert findings(UNFINISHED) == []
