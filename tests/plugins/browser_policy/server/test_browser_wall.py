"""The second wall, as a real Jupyter Server sends it, and how it is switched on and looked for."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from traitlets import TraitError
from traitlets.config import Config

from sandbox_kernel.plugins.api import Diagnosis
from sandbox_kernel.plugins.browser_policy import server_configuration
from sandbox_kernel.plugins.browser_policy.extension import RENDERER, SandboxKernelPolicy, _without_renderer, kind_of
from sandbox_kernel.policy.frame import HASHES
from tests.support import ROOT
from tests.support.kernels import eventually
from tests.support.programs import program

TOKEN = secrets.token_hex(16)


@contextmanager
def server(folder: Path, **settings: object) -> Iterator[str]:
    """Run a JupyterLab on loopback and yield its address."""
    for name in ("notebooks", "runtime", "config", "data", "home"):
        (folder / name).mkdir()
    config = {
        "ServerApp": {"jpserver_extensions": {server_configuration.EXTENSION: True}},
        "SandboxKernelPolicy": settings,
    }
    (folder / "config/jupyter_server_config.json").write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = f"""--no-browser --allow-root --ServerApp.ip=127.0.0.1 --ServerApp.port={port}
        --IdentityProvider.token={TOKEN} --LabApp.news_url= --LabApp.extension_manager=readonly
        --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    environment |= {f"JUPYTER_{name.upper()}_DIR": str(folder / name) for name in ("runtime", "config", "data")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*program("jupyterlab"), *command.split(), f"--ServerApp.root_dir={folder / 'notebooks'}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment | {"HOME": str(folder / "home")},
        )  # fmt: skip
    found = folder / "runtime" / f"jpserver-{process.pid}.json"
    try:
        eventually(lambda: (found.exists() and found.read_text()) or process.poll() is not None, 60, "the server runs")
        assert found.exists(), (folder / "log").read_text()
        eventually(lambda: answers(port), 60, "the server answers")
        yield json.loads(found.read_text())["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait(10)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def ask(url: str, path: str, **headers: str) -> tuple[http.client.HTTPResponse, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", parts.path + path, headers={"Authorization": f"token {TOKEN}", **names})
    answer = connection.getresponse()
    body = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer, body


def policies(answer: http.client.HTTPResponse) -> list[str]:
    return answer.headers.get_all("Content-Security-Policy") or []


def test_pages_that_show_notebooks_come_with_the_wall_beside_the_server_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(tmp_path) as url:
        (tmp_path / "notebooks/made.js").write_text("1")
        (tmp_path / "notebooks/page.html").write_text("<p>")
        page, body = ask(url, "lab")
        own, ours = policies(page)
        assert "frame-ancestors 'self'" in own
        for part in (
            "script-src-attr 'none'",
            "object-src blob:",
            "base-uri 'self'",
            "form-action 'self'",
            *HASHES,
        ):
            assert part in ours
        scripts = next(part for part in ours.split("; ") if part.startswith("script-src "))
        assert "'unsafe-inline'" not in scripts
        assert (
            scripts.count("'sha256-") == 4
        )  # the frames' three, and the page's own, which takes the token from the address
        assert (
            RENDERER
            in json.loads(body.partition('type="application/json">')[2].partition("</script>")[0])["disabledExtensions"]
        )
        assert page.headers["X-DNS-Prefetch-Control"] == "off"
        assert "camera=()" in page.headers["Permissions-Policy"]
        assert "clipboard-write=(self)" in page.headers["Permissions-Policy"]
        for path in ("tree", "lab/tree/made.js", "doc"):
            assert any("script-src-attr 'none'" in one for one in policies(ask(url, path)[0])), path

        content, _ = ask(url, "files/page.html")
        assert any("connect-src 'self'" in one and "sandbox allow-scripts" in one for one in policies(content))
        kinds = {dest: ask(url, "files/made.js", Sec_Fetch_Dest=dest)[0] for dest in ("script", "worker", "empty")}
        for dest in ("script", "worker", "empty"):
            assert kinds[dest].headers["Content-Type"] == "text/plain"
            assert kinds[dest].headers["X-Content-Type-Options"] == "nosniff"
        # Over plain HTTP from another machine, a browser does not say what it wants a file for.
        unsaid, _ = ask(url, "files/made.js")
        assert (unsaid.headers["Content-Type"], unsaid.headers["X-Content-Type-Options"]) == ("text/plain", "nosniff")
        assert ask(url, "files/page.html")[0].headers["Content-Type"].startswith("text/html")
        again, _ = ask(url, "lab", If_None_Match=page.headers.get("Etag", "*"))
        assert (again.status, policies(again)) == (200, policies(page))
        assert policies(ask(url, "api/status")[0])[0].startswith("frame-ancestors")
        assert len(policies(ask(url, "api/status")[0])) == 1

        monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
        assert list(server_configuration._running()) == [url]
        assert server_configuration._sends(url) is True
    assert server_configuration._sends(url) is None  # it is gone


def test_an_operator_may_switch_it_off_and_the_doctor_sees_it(tmp_path: Path) -> None:
    with server(tmp_path, enabled=False) as url:
        assert len(policies(ask(url, "lab")[0])) == 1
        assert server_configuration._sends(url) is False
    assert "the second wall in the browser is switched off" in (tmp_path / "log").read_text()


def test_an_operator_may_add_sources_and_nothing_else() -> None:
    policy = SandboxKernelPolicy(
        extra_sources={"img-src": ["https://pictures.example"], "script-src-attr": ["'unsafe-inline'"]}
    )
    sent = policy.policy("app", "127.0.0.1:8888", b"").split("; ")
    assert "img-src 'self' data: blob: https://pictures.example" in sent
    assert "script-src-attr 'unsafe-inline'" in sent
    assert "connect-src 'self' data: blob: ws://127.0.0.1:8888 wss://127.0.0.1:8888" in sent
    for wrong in ({"img-src": ["a; script-src *"]}, {"img-src": ["a b"]}, {"img-src": [""]}, {"sandbox": ["x"]}):
        with pytest.raises(TraitError):
            SandboxKernelPolicy(config=Config({"SandboxKernelPolicy": {"extra_sources": wrong}}))
    loose = SandboxKernelPolicy(inline_scripts=True).policy("app", "x y; script-src *", b"<script>1</script>")
    assert "script-src 'self' 'unsafe-eval' 'unsafe-inline'; script-src-attr 'none'" in loose
    assert "x y" not in loose


@pytest.mark.parametrize(
    ("path", "base", "page", "kind"),
    [
        ("/lab", "/", b"", "app"),
        ("/user/me/notebooks/files/x.ipynb", "/user/me/", b"", "app"),
        ("/user/me/files/lab", "/user/me/", b"", "content"),
        ("/nbconvert/html/x.ipynb", "/", b'id="jupyter-config-data"', "content"),
        ("/another/app", "/", b'<script id="jupyter-config-data">', "app"),
        ("/api/contents", "/", b"", ""),
        ("/static/lab/main.js", "/", b"", ""),
    ],
)
def test_what_a_path_shows(path: str, base: str, page: bytes, kind: str) -> None:
    assert kind_of(path, base, page) == kind


def test_another_hook_of_the_page_is_kept() -> None:
    add = _without_renderer(lambda handler, config: {**config, "theirs": handler})
    assert add(1, {"disabledExtensions": ["x"]}) == {"disabledExtensions": ["x", RENDERER], "theirs": 1}
    assert _without_renderer(None)(1, {"disabledExtensions": {"x": True, "y": False}}) == {
        "disabledExtensions": ["x", RENDERER]
    }
    assert _without_renderer(None)(1, {"disabledExtensions": [RENDERER]}) == {"disabledExtensions": [RENDERER]}


def test_it_is_switched_on_once_and_a_no_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / "etc/jupyter"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr("jupyter_core.paths.ENV_CONFIG_PATH", [])
    [off] = server_configuration.look().problems
    assert ("sandbox-kernel setup" in off.remedy, off.certain) == (True, False)
    path = server_configuration.switch_on(user=False, prefix=str(tmp_path))
    assert path == tmp_path / "etc/jupyter/jupyter_server_config.d/sandbox_kernel.json"
    assert server_configuration.look() == Diagnosis("Jupyter Server sends our page policy")
    said = path.read_text().replace("true", "false")
    path.write_text(said)
    server_configuration.switch_on(user=False, prefix=str(tmp_path))
    assert path.read_text() == said
    assert len(server_configuration.look().problems) == 1
    assert server_configuration.switch_on(user=True, prefix=None).is_relative_to(tmp_path / "config")


def test_the_wheel_brings_the_same_file() -> None:
    assert json.loads((ROOT / "jupyter-config/sandbox_kernel.json").read_text()) == server_configuration.CONTENT
    shared = (ROOT / "pyproject.toml").read_text().partition("wheel.shared-data]\n")[2].partition("\n\n")[0]
    assert f'"etc/jupyter/{server_configuration.FOLDER}/{server_configuration.FILE}"' in shared
