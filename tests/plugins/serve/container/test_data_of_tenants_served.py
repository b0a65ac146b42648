"""What clients of a server have of the host's: what the operator gives their names, and nothing that they ask for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.plugins.serve.container.conftest import TOKENS, options
from tests.plugins.serve.container.server import Server
from tests.plugins.serve.container.test_e2b_wire import run, sandbox

LOOK = (
    "import glob\nprint([open(one).read() for one in sorted(glob.glob('/mnt/datasets/*/word'))],"
    " glob.glob('/mnt/volumes/*'), [line.split()[1] for line in open('/proc/mounts') if '/hostile' in line])"
)


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="datasets-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        for name in ("all", "bobs"):
            (place / name).mkdir()
            (place / name / "word").write_text(name, encoding="utf-8")
        yield place


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Server]:
    datasets = [word for name in ("all", "bobs") for word in ("--dataset", f"{name}={data}/{name}")]
    one = Server(*options(tmp_path_factory.mktemp("tokens")), *datasets, "--tenant-dataset", "bob:bobs")
    yield one
    one.close()


@pytest.mark.parametrize(("name", "found"), [("ann", "['all'] [] []\n"), ("bob", "['all', 'bobs'] [] []\n")])
async def test_a_client_has_what_its_name_has_and_no_folder_that_it_asks_for(
    served: Server, data: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: str
) -> None:
    """In each field of E2B's that could be one, and in others that nobody knows."""
    monkeypatch.setitem(TOKENS, "ann", TOKENS[name])
    wanted = {"bobs": f"{data}/bobs"}
    hostile = {
        "datasets": wanted,
        "volumes": {"models": "rw"},
        "mounts": [{"source": f"{data}/bobs", "target": "/hostile"}],
        "metadata": {"datasets": f"bobs={data}/bobs", "volumes": "models:rw"},
        "envVars": {"SANDBOX_KERNEL_DATASETS": f"bobs={data}/bobs", "SANDBOX_KERNEL_VOLUMES": "models:rw"},
    }
    async with sandbox(served, **hostile) as (client, _):
        [line] = [one for one in await run(client, LOOK) if one["type"] == "stdout"]
        assert line["text"] == found
    async with httpx2.AsyncClient(base_url=served.url, headers={"X-API-Key": TOKENS["ann"]}, timeout=30) as client:
        for template in (f"{data}/bobs", "bobs"):
            answer = await client.post("/v2/sandboxes", json={"templateID": template})
            assert answer.status_code == 404
        mounts = [{"name": f"{data}/bobs", "path": "/hostile"}]
        answer = await client.post("/v2/sandboxes", json={"templateID": "base", "volumeMounts": mounts})
        assert (answer.status_code, answer.json()["error"]) == (400, "not-offered")
