"""What people use in a notebook reaches an allowed host from inside a sandbox, and shows why another one is denied.

Both servers are the tests' own, on the loopback; the names are invented.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Execution, Sandbox
from tests.support.cases import paired, some
from tests.support.origins import ROWS, Origins, reachable

pytestmark = pytest.mark.timeout(300)

USES = {
    "urllib": "import urllib.request, json; print(json.load(urllib.request.urlopen(base + '/rows')))",
    "requests": "import requests; print(requests.get(base + '/rows').json())",
    "a session of requests": (
        "import requests\nwith requests.Session() as kept:\n"
        "    kept.get(base + '/1'); print(kept.get(base + '/rows').json())"
    ),
    "httpx": "import httpx; print(httpx.get(base + '/rows').json())",
    "httpx, awaited": (
        "import httpx\nasync with httpx.AsyncClient() as client:\n    print((await client.get(base + '/rows')).json())"
    ),
    "aiohttp": (
        "import aiohttp\n"
        "async with aiohttp.ClientSession(trust_env=True) as client, client.get(base + '/rows') as answer:\n"
        "    print(await answer.json())"
    ),
    "pandas, CSV": "import pandas; print(pandas.read_csv(base + '/sales.csv').to_dict('records'))",
    "pandas, JSON": "import pandas; print(pandas.read_json(base + '/rows').to_dict('records'))",
    "pandas, Parquet": "import pandas; print(pandas.read_parquet(base + '/sales.parquet').to_dict('records'))",
    "polars, CSV": "import polars; print(polars.read_csv(base + '/sales.csv').to_dicts())",
    "polars, Parquet": "import polars; print(polars.read_parquet(base + '/sales.parquet').to_dicts())",
    "polars, lazily": "import polars; print(polars.scan_parquet(base + '/sales.parquet').collect().to_dicts())",
    "a shell's Python": (
        "import subprocess, sys\n"
        "code = 'import requests, sys; print(requests.get(sys.argv[1]).json())'\n"
        "print(subprocess.run([sys.executable, '-c', code, base + '/rows'], capture_output=True, text=True).stdout)"
    ),
}

REASONS = {
    "urllib": "import urllib.request; urllib.request.urlopen(base)",
    "requests": "import requests; requests.get(base)",
    "httpx": "import httpx; httpx.get(base)",
    "aiohttp": (
        "import aiohttp\nasync with aiohttp.ClientSession(trust_env=True) as c, c.get(base) as answer:\n    pass"
    ),
    "pandas": "import pandas; pandas.read_csv(base + '/sales.csv')",
}
"""Of a tunnel that is refused, which each library raises an exception for."""


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Origins]:
    folder = tmp_path_factory.mktemp("origins")
    with Sandbox(image=image) as sandbox:
        made = sandbox.run_code(f"import pandas; pandas.DataFrame({ROWS!r}).to_parquet('sales.parquet')")
        assert made.ok, made
        sandbox.files.download("sales.parquet", folder)
    with reachable(folder) as origins:
        yield origins


@pytest.fixture(scope="module", params=some([None, "runsc"], of=2), ids=["runc", "gVisor"])
def sandbox(request: pytest.FixtureRequest, origins: Origins, image: str) -> Iterator[Sandbox]:
    with Sandbox(
        image=image,
        runtime=request.param,
        memory="1G",
        network=origins.rules,
        network_certificates=str(origins.certificates),
    ) as sandbox:
        yield sandbox


def use(sandbox: Sandbox, base: str, code: str) -> Execution:
    return sandbox.run_code(f"base = {base!r}\n{code}")


@pytest.mark.parametrize(("library", "scheme"), paired(USES, ["http", "https"]))
def test_a_library_reaches_an_allowed_host(sandbox: Sandbox, origins: Origins, scheme: str, library: str) -> None:
    execution = use(sandbox, getattr(origins, scheme), USES[library])
    assert execution.error is None, execution
    assert "".join(execution.logs.stdout).strip() == str(ROWS)
    assert execution.denied == []


@pytest.mark.parametrize("library", REASONS)
def test_a_library_shows_why_a_host_is_denied(sandbox: Sandbox, library: str) -> None:
    """The exception has the rule to add, and one line on stderr names the setting."""
    execution = use(sandbox, "https://denied.example.org", REASONS[library])
    assert execution.error is not None
    assert "denied.example.org" in execution.error.value
    assert "no allowed host" in execution.error.value or "403" in execution.error.value
    told = [line for line in "".join(execution.logs.stderr).splitlines() if line.startswith("[sandbox_kernel]")]
    assert len(told) == 1, told
    assert "denied.example.org" in told[0]
    assert "network" in told[0]
    assert [(denial.code, denial.host, denial.port) for denial in execution.denied] == [
        ("host-not-allowed", "denied.example.org", 443)
    ]


WEB_SOCKET = (
    "import aiohttp\n"
    "async with aiohttp.ClientSession(trust_env=True) as client, client.ws_connect(base) as socket:\n"
    "    print((await socket.receive()).data)"
)


def test_a_web_socket_over_tls_reaches_an_allowed_host(sandbox: Sandbox, origins: Origins) -> None:
    execution = use(sandbox, origins.https.replace("https", "wss"), WEB_SOCKET)
    assert execution.error is None, execution
    assert "".join(execution.logs.stdout).strip() == "hello"


def test_a_web_socket_without_tls_is_told_to_use_it(sandbox: Sandbox, origins: Origins) -> None:
    execution = use(sandbox, origins.http.replace("http", "ws"), WEB_SOCKET)
    assert execution.error is not None
    assert "(https, wss)" in "".join(execution.logs.stderr)


def test_duckdb_asks_for_its_extensions_by_the_way_out(sandbox: Sandbox) -> None:
    execution = sandbox.run_code("import duckdb; duckdb.sql(\"INSTALL httpfs FROM 'http://denied.example.org'\")")
    assert execution.error is not None
    assert "HTTP 403" in execution.error.value
    assert [(denial.code, denial.host, denial.port) for denial in execution.denied] == [
        ("host-not-allowed", "denied.example.org", 80)
    ]


PAST_IT = {
    "a name looked up": "import socket; socket.getaddrinfo('api.example.test', 443)",
    "aiohttp as it is": (
        "import aiohttp\n"
        "async with aiohttp.ClientSession() as client, client.get('https://api.example.test') as answer:\n"
        "    pass"
    ),
    "an address dialled": "import socket; socket.create_connection(('192.0.2.1', 80))",
}


@pytest.mark.parametrize("case", PAST_IT)
def test_what_goes_past_the_proxy_meets_no_network_and_is_told_of_it(sandbox: Sandbox, case: str) -> None:
    execution = sandbox.run_code(PAST_IT[case])
    assert execution.error is not None
    assert "aiohttp needs trust_env=True" in "".join(execution.logs.stderr)
    assert execution.denied == []
