"""A cell uses a key that it never has: real sandboxes, libraries that people use, a host that echoes its requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from tests.support.origins import Origins

pytestmark = pytest.mark.timeout(300)

VALUE = "sk-live-8Jd02kQm3vXz71LpRt5W"
HEAD = "head = {'Authorization': 'Bearer ' + os.environ['API_KEY']}"

USES = {
    "requests": "import requests; r = requests.get(base + '/headers', headers=head); print(r.text, r.headers)",
    "httpx": "import httpx; r = httpx.get(base + '/headers', headers=head); print(r.text, r.headers)",
    "urllib": (
        "import urllib.request as u\n"
        "r = u.urlopen(u.Request(base + '/headers', headers=head)); print(r.read().decode(), r.headers)"
    ),
    "aiohttp": (
        "import aiohttp\n"
        "async with aiohttp.ClientSession(trust_env=True) as c, c.get(base + '/headers', headers=head) as r:\n"
        "    print(await r.text(), r.headers)"
    ),
}

SEARCH = """
import os
value = bytes.fromhex(hexadecimal)
found, looked = [], 0
for root in ("/proc", "/tmp", "/mnt", "/etc", "/opt", "/run", "/var", "/home", "/root", "/dev/shm"):
    for folder, folders, names in os.walk(root):
        folders[:] = [one for one in folders if one not in {"task", "site-packages"}]
        for name in names:
            path = os.path.join(folder, name)
            if name in {"kmsg", "kcore"} or path.startswith("/proc/self/") or path == f"/proc/{os.getpid()}/mem":
                continue
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    data = os.read(fd, 1 << 20)
                finally:
                    os.close(fd)
            except OSError:
                continue
            looked += 1
            if value in data:
                found.append(path)
print(looked > 100, found, any(value.decode() in text for text in os.environ.values()))
"""


@pytest.fixture(scope="module", params=[None, "runsc"], ids=["runc", "gVisor"])
def sandbox(
    request: pytest.FixtureRequest, origins: Origins, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    file = tmp_path_factory.mktemp("secret") / "key"
    file.write_text(VALUE)
    file.chmod(0o600)
    secret = {"file": str(file), "hosts": [f"api.example.test:{origins.tls.port}"]}
    with Sandbox(
        image=image,
        runtime=request.param,
        memory="1G",
        network=origins.rules,
        network_certificates=str(origins.certificates),
        secrets={"API_KEY": secret},
        audit=str(file.with_name("audit.jsonl")),
    ) as sandbox:
        # Whichever tests follow in this process, the value has been used and the audit speaks of it.
        used = sandbox.run_code(f"import os\nbase = {origins.https!r}\n{HEAD}\n{USES['requests']}")
        assert used.error is None, used
        yield sandbox
    written = Path(file.with_name("audit.jsonl")).read_text(encoding="utf-8")
    assert '"code":"connected"' in written.replace(" ", "")
    assert VALUE not in written


@pytest.mark.parametrize("library", USES)
def test_a_library_sends_the_value_and_sees_a_placeholder(sandbox: Sandbox, origins: Origins, library: str) -> None:
    before = len(origins.tls.requests)
    execution = sandbox.run_code(f"import os\nbase = {origins.https!r}\n{HEAD}\n{USES[library]}")
    assert execution.error is None, execution
    shown = "".join(execution.logs.stdout)
    assert origins.tls.requests[before][2]["Authorization"] == f"Bearer {VALUE}"
    assert "Bearer sk-" in shown
    assert VALUE not in shown


def test_the_value_is_nowhere_in_a_sandbox(sandbox: Sandbox) -> None:
    execution = sandbox.run_code(f"hexadecimal = {VALUE.encode().hex()!r}\n{SEARCH}")
    assert execution.error is None, execution
    assert "".join(execution.logs.stdout).split() == ["True", "[]", "False"]


def test_control_what_a_cell_writes_is_found(sandbox: Sandbox) -> None:
    sandbox.run_code(f"open('/tmp/there', 'w').write({VALUE!r})")
    execution = sandbox.run_code(f"hexadecimal = {VALUE.encode().hex()!r}\n{SEARCH}")
    sandbox.run_code("import os; os.unlink('/tmp/there')")
    assert "/tmp/there" in "".join(execution.logs.stdout)
