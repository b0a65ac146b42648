"""LibreChat's wire against a real server, with real sandboxes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
"""A PNG of one pixel."""


FIGURES = {"runtime_session_hint": "c1"}


class Client:
    """What LibreChat asks."""

    def __init__(self, server: Server, name: str) -> None:
        base, headers = f"{server.url}/librechat/v1", {"X-API-Key": TOKENS[name]}
        self.http = httpx2.Client(base_url=base, headers=headers, timeout=60)

    def run(self, code: str, lang: str = "py", **more: Any) -> dict[str, Any]:
        answer = self.http.post("/exec", json={"lang": lang, "code": code, **more})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def program(self, **asked: Any) -> dict[str, Any]:
        answer = self.http.post("/exec/programmatic", json=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture(scope="module")
def ann(server: Server) -> Iterator[Client]:
    one = Client(server, "ann")
    yield one
    one.http.close()


@pytest.fixture(scope="module")
def bob(server: Server) -> Iterator[Client]:
    one = Client(server, "bob")
    yield one
    one.http.close()


def test_a_conversation_has_one_sandbox_and_others_have_their_own(ann: Client) -> None:
    first = ann.run("x = 5; print('out'); open('/mnt/data/a.txt', 'w').write('one')", runtime_session_hint="c2")
    assert (first["stdout"], first["stderr"], first["status"]) == ("out\n", "", "completed")
    assert (first["runtime_status"], [one["name"] for one in first["files"]]) == ("new", ["a.txt"])
    second = ann.run("cat a.txt; echo $1 >&2; exit 3", "bash", args=["é"], runtime_session_hint="c2")
    assert (second["stdout"], second["runtime_status"], second["files"]) == ("one", "reused", [])
    assert sorted(second["stderr"].splitlines()) == ["exit code 3", "é"]
    assert second["runtime_session_id"] == first["runtime_session_id"]
    other = ann.run("import os; print(os.listdir('.')); 1/0")
    assert other["stdout"] == "[]\n"
    assert other["stderr"].endswith("ZeroDivisionError: division by zero\n")
    assert "\x1b" not in other["stderr"]


def test_files_go_in_by_their_ids_and_come_out(ann: Client, bob: Client) -> None:
    sent = ann.http.post("/upload", files={"file": ("d/in.csv", b"1,2\n")}).json()
    ref = {"id": sent["files"][0]["fileId"], "storage_session_id": sent["storage_session_id"], "name": "d/in.csv"}
    code = "print(open('d/in.csv').read()); open('out.bin', 'wb').write(bytes(200_000)); open('.hidden', 'w')"
    found = ann.run(code, files=[ref], runtime_session_hint="c1")
    assert found["stdout"] == "1,2\n\n"
    (out,) = found["files"]
    assert out["name"] == "out.bin"
    path = f"/download/{found['session_id']}/{out['id']}"
    assert ann.http.get(path).content == bytes(200_000)
    assert bob.http.get(path).status_code == 404
    changed = ann.run("print(open('d/in.csv', 'a').write('3'))", files=[ref], runtime_session_hint="c1")
    assert [one["name"] for one in changed["files"]] == ["d/in.csv"]
    theirs = bob.run("import os; print(os.listdir('.'))", files=[ref, {"id": "x", "name": "../y"}])
    assert theirs["stdout"] == "[]\n"
    assert theirs["stderr"].count("is not there") == 2
    code = f"import base64, IPython.display as d; d.display(d.Image(base64.b64decode({PICTURE!r})))"
    shown = ann.run(code, runtime_session_hint="c1")
    assert [one["name"] for one in shown["files"]] == ["figure-1.png"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("plt.plot([1, 2]); plt.savefig('x.png')", ["x.png"]),
        ("fig, ax = plt.subplots(); ax.plot([1]); fig.savefig('x.png', dpi=50); plt.show()", ["x.png"]),
        ("plt.plot([1]); plt.savefig('x')\nplt.gcf()", ["x.png"]),
        ("plt.plot([1]); plt.savefig('x.png'); plt.figure(); plt.plot([2]); plt.show()", ["figure-1.png", "x.png"]),
        ("plt.plot([1]); plt.savefig('x.png'); plt.title('changed'); plt.show()", ["figure-1.png", "x.png"]),
        ("plt.plot([1]); plt.savefig('/tmp/x.png')", ["figure-1.png"]),
        ("plt.plot([1]); plt.savefig('x.pdf')", ["figure-1.png", "x.pdf"]),
        ("import io; plt.plot([1]); plt.savefig(io.BytesIO())", ["figure-1.png"]),
        (
            "import IPython.display as d; f = plt.figure(); plt.plot([1]); f.savefig('x.png'); plt.close()\n"
            "d.display(d.Image('x.png'))",
            ["x.png"],
        ),
    ],
)
def test_a_figure_that_is_saved_is_one_picture(ann: Client, code: str, names: list[str]) -> None:
    clean = "import glob, os\nfor name in glob.glob('x.*'): os.remove(name)\n"
    found = ann.run(f"{clean}import matplotlib.pyplot as plt\n{code}", **FIGURES)
    assert (sorted(one["name"] for one in found["files"]), found["stderr"]) == (names, "")


def test_no_file_vanishes_without_a_word(ann: Client) -> None:
    sent = ann.http.post("/upload", files={"file": ("\u200eup.csv", b"up")}).json()
    ref = {"id": sent["files"][0]["fileId"], "storage_session_id": sent["storage_session_id"], "name": "\u200eup.csv"}
    code = (
        "import os, glob\n"
        "print([open(name).read() for name in glob.glob('*.csv')])\n"
        "open(b'\\xb2\\xe2.csv', 'w').write('gbk'); open('\u200em.csv', 'w').write('mark')\n"
        "os.makedirs(b'\\xca\\xd4'); open(b'\\xca\\xd4/in.csv', 'w').write('folder')\n"
        "os.symlink('\u200em.csv', 'link.csv')\n"
    )
    found = ann.run(code, files=[ref])
    assert found["stdout"] == "['up']\n"
    names = {one["name"]: one for one in found["files"]}
    contents = {ann.http.get(f"/download/{one['session_id']}/{one['id']}").text: name for name, one in names.items()}
    assert contents.keys() == {"gbk", "mark", "folder"}
    said = found["stderr"].splitlines()
    for name in (*names, sent["files"][0]["filename"]):
        assert name.isprintable()
        assert any(repr(name) in line for line in said), (name, said)
    assert any("link.csv" in line for line in said)
    code = "for n in range(103): open(f'f{n:03}.txt', 'w').write('x')\nopen('\\u200ez.txt', 'w').write('y')"
    found = ann.run(code)
    assert len(found["files"]) == 100
    assert "4 files were not taken out" in found["stderr"]
    missing = {f"f{n:03}.txt" for n in range(103)} - {one["name"] for one in found["files"]}
    assert all(name in found["stderr"] for name in missing)


def test_a_program_waits_for_its_tools_and_is_its_tenant_s(ann: Client, bob: Client) -> None:
    tools = [{"name": "get-weather"}]
    code = (
        "found = await asyncio.gather(*[get_weather(city=city) for city in 'ab'])\n"
        "try:\n    await get_weather(city='z')\nexcept Exception as error:\n    print(error)\n"
        "print(found)"
    )
    told = ann.program(code=code, tools=tools, runtime_session_hint="c1", timeout=20_000)
    assert sorted(one["input"]["city"] for one in told["tool_calls"]) == ["a", "b"]
    assert {one["name"] for one in told["tool_calls"]} == {"get-weather"}
    stolen = {"continuation_token": told["continuation_token"], "tool_results": []}
    assert bob.http.post("/exec/programmatic", json=stolen).status_code == 404
    results = [{"call_id": one["id"], "result": [one["input"]["city"]]} for one in told["tool_calls"]]
    told = ann.program(continuation_token=told["continuation_token"], tool_results=results)
    results = [{"call_id": told["tool_calls"][0]["id"], "is_error": True, "error_message": "unknown city"}]
    told = ann.program(continuation_token=told["continuation_token"], tool_results=results)
    assert (told["status"], told["stderr"]) == ("completed", "")
    assert "unknown city" in told["stdout"]
    assert told["stdout"].endswith("[['a'], ['b']]\n")
    told = ann.program(lang="bash", code="echo got $(get_weather '{}')", tools=tools, runtime_session_hint="c1")
    results = [{"call_id": told["tool_calls"][0]["id"], "result": {"t": 1}}]
    assert ann.program(continuation_token=told["continuation_token"], tool_results=results)["stdout"] == 'got {"t":1}\n'
    late = ann.program(code="while True: pass", tools=tools, runtime_session_hint="c1", timeout=1000)
    assert (late["status"], late["error"]) == ("error", "Time limit exceeded")


def test_a_client_that_goes_interrupts_its_code(ann: Client) -> None:
    with pytest.raises(httpx2.TimeoutException):
        ann.http.post(
            "/exec",
            json={"lang": "py", "code": "import time; time.sleep(50)", "runtime_session_hint": "c1"},
            timeout=1,
        )
    begun = time.monotonic()
    assert ann.run("print(5)", runtime_session_hint="c1")["stdout"] == "5\n"
    assert time.monotonic() - begun < 20
