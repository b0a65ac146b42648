"""A JupyterHub on loopback as docs/jupyterhub.md sets it up: real logins (PAM), its local spawner, its own proxy."""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.hub.places import HUB, PROXY
from tests.hub.users import PATH, Machine, User
from tests.support.kernels import eventually

START_SECONDS = 90.0
STOP_SECONDS = 30.0
CONFIG = """\
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = ["{program}"]
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.JupyterHub.pid_file = "{folder}/hub.pid"
c.PAMAuthenticator.open_sessions = False
c.Authenticator.allowed_users = {names!r}
c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
c.Spawner.start_timeout = {seconds}
c.Spawner.http_timeout = {seconds}
c.Spawner.poll_interval = 2
c.Spawner.environment = {{"JUPYTER_PATH": "{kernels}/share/jupyter", "PYTHONDONTWRITEBYTECODE": "1"}}
# What docs/jupyterhub.md says:
c.Spawner.args = ["--SandboxKernels.allowed=sandbox-python", "--ServerApp.terminals_enabled=False"]
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in found]


class Member:
    """A person who has logged in."""

    def __init__(self, url: str, user: User) -> None:
        self.user, self._url = user, url
        self.server = f"{url}/user/{user.name}"
        jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        self._open("GET", "/hub/login")
        form = {"username": user.name, "password": user.password, "_xsrf": self._xsrf(jar)}
        self._open("POST", "/hub/login?next=/hub/token", urllib.parse.urlencode(form).encode())
        token = self._open("POST", f"/hub/api/users/{user.name}/tokens?_xsrf={self._xsrf(jar)}", b"{}")
        self.token = str(json.loads(token)["token"])

    @staticmethod
    def _xsrf(jar: http.cookiejar.CookieJar) -> str:
        return next((str(cookie.value) for cookie in jar if cookie.name == "_xsrf"), "")

    def _open(self, method: str, path: str, data: bytes | None = None) -> bytes:
        kind = "application/json" if path.startswith("/hub/api/") else "application/x-www-form-urlencoded"
        request = urllib.request.Request(self._url + path, data, {"Content-Type": kind}, method=method)
        with self._opener.open(request, timeout=60) as answer:
            return bytes(answer.read())

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the answer of the hub's or a server's API, asked with this person's own token."""
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, None

    @property
    def is_served(self) -> bool:
        _, said = self.ask("GET", f"/hub/api/users/{self.user.name}")
        return bool(said["servers"].get("", {}).get("ready"))

    def start_server(self) -> None:
        assert self.ask("POST", f"/hub/api/users/{self.user.name}/server", {})[0] in {201, 202}
        eventually(lambda: self.is_served, START_SECONDS, f"the server of {self.user.name} is ready")

    def stop_server(self) -> None:
        assert self.ask("DELETE", f"/hub/api/users/{self.user.name}/server")[0] in {202, 204}
        eventually(lambda: not self.is_served, STOP_SECONDS, f"the server of {self.user.name} has ended")


class Hub:
    """The hub's process and its proxy's."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")[-5000:]
        try:
            with urllib.request.urlopen(f"{self.url}/hub/api/", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def login(self, user: User) -> Member:
        return Member(self.url, user)

    def stop(self) -> None:
        """End it as an operator does; servers of users end with it."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            _, alive = psutil.wait_procs(children, STOP_SECONDS)
            for one in alive:
                one.kill()
            assert not alive, alive


@contextlib.contextmanager
def a_hub(machine: Machine, folder: Path, kernels: Path, users: list[User]) -> Iterator[Hub]:
    """Run a hub for these users. `folder` is root's own; `kernels` has the kernelspecs that all can read."""
    public, hub, proxy = free_ports(3)
    config = CONFIG.format(
        public=public, hub=hub, proxy=proxy, program=PROXY, folder=folder, kernels=kernels,
        names={user.name for user in users}, seconds=int(START_SECONDS),
    )  # fmt: skip
    (folder / "jupyterhub_config.py").write_text(config, encoding="utf-8")
    command = machine.command([str(HUB / "venv/bin/jupyterhub"), "-f", str(folder / "jupyterhub_config.py")])
    environment = {"PATH": f"{HUB / 'venv/bin'}:{PATH}", "HOME": str(folder), "LANG": "C.UTF-8"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    found = Hub(process, f"http://127.0.0.1:{public}", folder / "log")
    try:
        eventually(found.answers, START_SECONDS, "the hub answers")
        yield found
    finally:
        if process.poll() is None:
            found.stop()


@contextlib.contextmanager
def a_broker(machine: Machine, owner: User, file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the operator's broker as its own system user, who alone has the right to Docker."""
    words = [str(HUB / "venv/bin/sandbox-kernel"), "broker", "--for-all", "--file", str(file)]
    words += ["--metrics", "/run/sandbox-kernel/metrics.sock", *options]
    command = machine.command(words, owner, groups=["docker"])
    with (file.parent / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd="/", env={"PATH": PATH}, stdin=subprocess.DEVNULL, stderr=log)
    place = machine.root / "run/sandbox-kernel/broker.sock"
    try:
        eventually(lambda: place.exists() or process.poll() is not None, 30, "the broker listens")
        assert process.poll() is None, (file.parent / "broker.log").read_text(encoding="utf-8")
        yield process
    finally:
        process.terminate()
        assert process.wait(20) in {0, -signal.SIGKILL}


def metrics(machine: Machine) -> dict[str, float]:
    """Return the broker's figures, as its operator reads them."""
    page = b""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(str(machine.root / "run/sandbox-kernel/metrics.sock"))
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
        while piece := sock.recv(1 << 16):
            page += piece
    lines = [line for line in page.decode().splitlines() if line.startswith("sandbox_kernel_broker_")]
    return {
        line.rpartition(" ")[0].removeprefix("sandbox_kernel_broker_"): float(line.rpartition(" ")[2]) for line in lines
    }


def nothing_more_of(user: User, seconds: float = 20) -> float:
    """Wait until no process of a user is left."""
    return eventually(lambda: not user.processes(), seconds, f"no process of {user.name} is left")
