"""The way out through each entry point, end to end: a kernel and its restart, a batch run, a sandbox of the SDK."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from mcp import Client, StdioServerParameters

from sandbox_kernel import AsyncSandbox, NetworkUsage, Sandbox, cli
from tests.support import ROOT
from tests.support.kernels import Kernel, close_all, eventually, install
from tests.support.mcp_hosts import run, text_of
from tests.support.origins import ROWS, Origins

VALUE = "sk-proj-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(VALUE + "\n")
    file.chmod(0o600)
    return file


def secret(origins: Origins, token: Path, header: str | None = None) -> dict[str, dict[str, object]]:
    about: dict[str, object] = {"file": str(token), "hosts": [f"api.example.test:{origins.tls.port}"]}
    return {"API_KEY": about | ({"header": header} if header else {})}


# --- the SDK ---------------------------------------------------------------------------------------------------------

WITH_A_KEY = {
    "requests": "import requests; print(requests.get(base + '/headers', headers=headers).json()['Authorization'])",
    "httpx": "import httpx; print(httpx.get(base + '/headers', headers=headers).json()['Authorization'])",
    "urllib": (
        "import urllib.request, json\n"
        "asked = urllib.request.Request(base + '/headers', headers=headers)\n"
        "print(json.load(urllib.request.urlopen(asked))['Authorization'])"
    ),
    "aiohttp": (
        "import aiohttp\n"
        "async with aiohttp.ClientSession(trust_env=True) as client:\n"
        "    async with client.get(base + '/headers', headers=headers) as answer:\n"
        "        print((await answer.json())['Authorization'])"
    ),
    "pandas": (
        "import pandas\n"
        "print(pandas.read_json(base + '/headers', typ='series', storage_options=headers)['Authorization'])"
    ),
}


@pytest.fixture(scope="module", params=[None, "runsc"], ids=["runc", "gVisor"])
def keyed(
    request: pytest.FixtureRequest, origins: Origins, tmp_path_factory: pytest.TempPathFactory, image: str
) -> Iterator[Sandbox]:
    file = tmp_path_factory.mktemp("secret") / "token"
    file.write_text(VALUE)
    file.chmod(0o600)
    with Sandbox(
        image=image,
        runtime=request.param,
        network=origins.rules,
        network_certificates=str(origins.certificates),
        secrets=secret(origins, file),
    ) as sandbox:
        yield sandbox


@pytest.mark.parametrize("library", WITH_A_KEY)
def test_a_library_uses_a_key_that_its_cell_never_sees(keyed: Sandbox, origins: Origins, library: str) -> None:
    """The host of the secret gets the value; what it says of it comes back as the placeholder."""
    origins.tls.requests.clear()
    execution = keyed.run_code(
        f"import os; base = {origins.https!r}; headers = {{'Authorization': 'Bearer ' + os.environ['API_KEY']}}\n"
        + WITH_A_KEY[library]
    )
    assert execution.error is None, execution
    assert [headers["Authorization"] for _, _, headers in origins.tls.requests] == [f"Bearer {VALUE}"]
    placeholder = keyed.run_code("import os; os.environ['API_KEY']").text
    assert placeholder is not None
    assert "".join(execution.logs.stdout).strip() == f"Bearer {placeholder.strip(chr(39))}"
    assert VALUE not in execution.to_json()


def test_a_sandbox_says_what_its_connections_came_to(origins: Origins, image: str) -> None:
    with Sandbox(image=image, network=origins.rules) as sandbox:
        assert sandbox.network_usage == NetworkUsage()
        execution = sandbox.run_code(
            f"import requests; requests.get({origins.http!r} + '/rows'); requests.get('http://other.example.org/').text"
        )
        usage = sandbox.network_usage
    assert usage.connections == 2
    assert usage.refused == {"host-not-allowed": 1}
    assert usage.received_bytes > 200
    assert usage.sent_bytes > 100
    assert execution.text is not None
    assert "host-not-allowed: other.example.org is no allowed host" in execution.text
    assert [denial.host for denial in execution.denied] == ["other.example.org"]


async def test_many_connections_at_once(origins: Origins, image: str) -> None:
    async with AsyncSandbox(image=image, network=origins.rules) as sandbox:
        execution = await sandbox.run_code(
            "import asyncio, httpx\n"
            "async with httpx.AsyncClient() as client:\n"
            f"    all = await asyncio.gather(*(client.get({origins.http!r} + f'/{{n}}') for n in range(40)))\n"
            "{answer.status_code for answer in all}"
        )
    assert execution.text == "{200}"


# --- a kernel --------------------------------------------------------------------------------------------------------


@pytest.fixture
def start_named(tmp_path: Path, image: str) -> Iterator[Callable[..., Kernel]]:
    """Start kernels whose processes know the names of the tests; none may leave a container."""
    kernels: list[Kernel] = []

    def start(*settings: str) -> Kernel:
        specs = install(tmp_path / "spec", "--image", image, *settings)
        file = Path(specs.get_kernel_spec("sandbox-python").resource_dir, "kernel.json")
        spec = json.loads(file.read_text())
        begin = spec["argv"].index("-f")
        spec["argv"][:begin] = [sys.executable, str(ROOT / "tests" / "support" / "named_kernel.py")]
        file.write_text(json.dumps(spec))
        manager = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=specs)
        manager.start_kernel()
        kernels.append(Kernel(manager))
        return kernels[-1]

    yield start
    close_all(kernels)


def settings_of(origins: Origins, token: Path) -> list[str]:
    rules = [word for rule in origins.rules for word in ("--network", rule)]
    key = f"API_KEY=file:{token}@api.example.test:{origins.tls.port} Authorization: Bearer {{}}"
    return [*rules, "--secret", key, "--network-certificates", str(origins.certificates)]


ASK = (
    "import os, requests\n"
    "requests.get({base!r} + '/headers').json()['Authorization'] == 'Bearer ' + os.environ['API_KEY']"
)


BUSY = """
import threading
def ask_on():
    while True:
        requests.get({base!r} + '/headers')
for _ in range(4):
    threading.Thread(target=ask_on, daemon=True).start()
"""


def test_a_restart_keeps_the_way_out(origins: Origins, token: Path, start_named: Callable[..., Kernel]) -> None:
    """The container lives on with its placeholder and its certificates, and the new kernel process knows both.

    Threads of the old kernel are in the midst of requests with the secret meanwhile, and end with it.
    """
    kernel = start_named(*settings_of(origins, token))
    ask = ASK.format(base=origins.https)
    assert kernel.run(ask).value == "True"
    kernel.run("open('kept.txt', 'w').write(os.environ['API_KEY'])")
    process = kernel.pid
    origins.tls.requests.clear()
    kernel.run(BUSY.format(base=origins.https))
    eventually(lambda: len(origins.tls.requests) > 20, 30, "threads ask on")
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    assert kernel.pid != process
    before = len(origins.tls.requests)
    assert kernel.run(ask).value == "True"
    assert kernel.run("open('kept.txt').read() == os.environ['API_KEY']").value == "True"
    assert len(origins.tls.requests) == before + 1, "nobody else asks any more"
    assert {headers["Authorization"] for _, _, headers in origins.tls.requests} == {f"Bearer {VALUE}"}


def test_a_sandbox_after_a_lost_one_has_the_way_out_too(
    origins: Origins, token: Path, start_named: Callable[..., Kernel]
) -> None:
    kernel = start_named(*settings_of(origins, token))
    lost = kernel.run("import os, signal; os.kill(1, signal.SIGKILL) or bytearray(1 << 40)")
    assert lost.ename or lost.reply["status"] == "ok"
    kernel.run("import ctypes; ctypes.string_at(0)")  # its kernel, if the sandbox withstood that
    assert kernel.run(ASK.format(base=origins.https)).value == "True"


def test_a_kernel_tells_of_what_is_denied(origins: Origins, token: Path, start_named: Callable[..., Kernel]) -> None:
    kernel = start_named(*settings_of(origins, token))
    denied = kernel.run("import requests; print(requests.get('http://denied.example.org/').status_code)")
    assert denied.text() == "403\n"
    assert denied.text("stderr").startswith("[sandbox_kernel] NetworkDenied: denied.example.org is no allowed host")
    reply = kernel.client.kernel_info(reply=True, timeout=60)["content"]
    assert reply["sandbox"]["network"] == origins.rules
    assert reply["sandbox"]["secrets"] == ["API_KEY"]
    assert "reaches nothing but api.example.test" in reply["banner"]
    assert str(token) not in json.dumps(reply)


# --- a host of language models ---------------------------------------------------------------------------------------


async def test_a_model_uses_a_key_that_its_host_does_not_hear_of(origins: Origins, token: Path, image: str) -> None:
    """Over stdio, as such hosts start it: what is said to the model names hosts and secrets, and no value."""
    program = str(ROOT / "tests" / "support" / "named_kernel.py")
    server = StdioServerParameters(
        command=sys.executable, args=[program, "mcp", "--image", image, *settings_of(origins, token)]
    )
    origins.tls.requests.clear()
    async with Client(server, mode="auto") as client:
        tools = {tool.name: tool.description or "" for tool in (await client.list_tools()).tools}
        used = await run(client, ASK.format(base=origins.https))
        denied = await run(client, "requests.get('http://denied.example.org/').status_code")
    assert "api.example.test" in tools["run_code"]
    assert "API_KEY" in tools["run_code"]
    first, *_, note = text_of(used).splitlines()
    assert (first, "is new" in note) == ("True", True)
    assert [headers["Authorization"] for _, _, headers in origins.tls.requests] == [f"Bearer {VALUE}"]
    assert "NetworkDenied: denied.example.org is no allowed host" in text_of(denied)
    assert text_of(denied).splitlines()[-1] == "403"
    said = json.dumps([tools, used.model_dump(mode="json"), denied.model_dump(mode="json")])
    assert VALUE not in said
    assert str(token) not in said


# --- a batch run -----------------------------------------------------------------------------------------------------


def test_a_run_reports_what_was_reached_and_what_was_denied(
    origins: Origins, tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [
        f"import pandas; print(pandas.read_json({origins.https!r} + '/rows').to_dict('records'))",
        "import requests; print(requests.get('http://denied.example.org/').text)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, "asks.ipynb")
    rules = [word for rule in origins.rules for word in ("--network", rule)]
    argv = ["run", "asks.ipynb", "--image", image, "--report", "report.json", "--quiet", *rules]
    argv += ["--network-certificates", str(origins.certificates)]
    assert cli.main(argv) == 5
    report = json.loads(Path("report.json").read_text())
    network = report["network"]
    assert network["rules"] == origins.rules
    assert network["refused"] == [{"code": "host-not-allowed", "count": 1}]
    assert network["connections"] == 2
    assert network["received_bytes"] > len(json.dumps(ROWS))
    assert report["cells"][0]["policy_events"] == []
    (event,) = report["cells"][1]["policy_events"]
    assert (event["code"], event["what"]) == ("host-not-allowed", "denied.example.org:80")
    assert cli.main([*argv, "--fail-on-policy", "never"]) == 0
