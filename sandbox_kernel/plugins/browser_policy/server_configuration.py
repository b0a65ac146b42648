"""Whether the Jupyter Server of this environment sends the second wall, and switching it on.

The package's wheel brings the same file, so that an installation switches it on; this is for all other ways to install.
Jupyter's packages are imported when they are needed, and may be missing.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ..api import Diagnosis, Problem

EXTENSION = "sandbox_kernel.server_extension"
CONTENT = {"ServerApp": {"jpserver_extensions": {EXTENSION: True}}}
FOLDER, FILE = "jupyter_server_config.d", "sandbox_kernel.json"
MAX_SERVERS = 8
SERVER_SECONDS = 2.0
"""For one running server to answer."""


def is_needed() -> bool:
    """Return whether this environment has a Jupyter Server."""
    return importlib.util.find_spec("jupyter_server") is not None


def switch_on(*, user: bool, prefix: str | None) -> Path:
    """Write the configuration file and return its path. One that is there is left alone: it may say no.

    Raises `ConfigurationError` if it cannot be written.
    """
    from jupyter_core.paths import jupyter_config_dir

    root = Path(jupyter_config_dir()) if user else Path(prefix or sys.prefix) / "etc" / "jupyter"
    path = root / FOLDER / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(CONTENT, indent=2) + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigurationError(
            UsageCode.PLACE_UNFIT,
            f"Jupyter Server's configuration cannot be written ({error.strerror}); choose --user or --sys-prefix",
            value=str(path),
        ) from error
    return path


def look() -> Diagnosis:
    """Say whether the servers of this environment send the second wall: those that run, and the next one."""
    from jupyter_core.paths import jupyter_config_path

    if not is_needed():
        return Diagnosis("no Jupyter Server in this environment; the one in use may be in another", skipped=True)
    enabled = _said(jupyter_config_path())
    running = [(url, _sends(url)) for url in _running()]
    missing = [url for url, sends in running if sends is False]
    found = "Jupyter Server sends our page policy" if enabled else "Jupyter Server does not send our page policy"
    if running:
        count = sum(sends is True for _, sends in running)
        found += f"; {count} of {len(running)} running servers send it" + (
            f", but not {', '.join(missing)}" if missing else ""
        )
    again = "start it again; if it is of another environment, install sandbox-kernel there"
    remedy = again if enabled else _switches_on()
    return Diagnosis(found, (Problem(found, remedy, certain=False),) if missing or not enabled else ())


def _said(folders: list[str]) -> bool | None:
    """Return what Jupyter Server's own configuration says in these places, None if that is nothing."""
    from jupyter_server.extension.config import ExtensionConfigManager

    manager: Any = ExtensionConfigManager(read_config_path=folders)
    said: bool | None = manager.get_jpserver_extensions().get(EXTENSION)
    return said


def _switches_on() -> str:
    """Return the command that switches it on. Jupyter's own does so only in a place that names it already."""
    from jupyter_core.paths import ENV_CONFIG_PATH, jupyter_config_dir, jupyter_config_path

    flags = dict.fromkeys(ENV_CONFIG_PATH, "--sys-prefix") | {jupyter_config_dir(): "--user"}
    for folder in jupyter_config_path():
        if _said([folder]) is False:
            return f"`jupyter server extension enable {EXTENSION} {flags.get(folder, '--system')}`"
    return "`sandbox-kernel setup`"


def _running() -> Iterator[str]:
    """Yield the addresses of this user's servers on this machine."""
    from jupyter_server.serverapp import list_running_servers

    for number, server in enumerate(list_running_servers()):
        if number == MAX_SERVERS:
            return
        url = str(server.get("url", ""))
        if urlsplit(url).hostname in {"localhost", "127.0.0.1", "::1"}:
            yield url


def _sends(url: str) -> bool | None:
    """Return whether a server's pages come with our policy, None if it does not answer. The answer may be: log in."""
    parts = urlsplit(url)
    made: Any = http.client.HTTPConnection
    options: dict[str, Any] = {"timeout": SERVER_SECONDS}
    if parts.scheme == "https":
        # Nothing is sent that a stranger may not see, and a server of one's own often has a certificate of its own.
        made, options["context"] = http.client.HTTPSConnection, (context := ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = made(parts.hostname, parts.port, **options)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/tree")
        policies = connection.getresponse().headers.get_all("Content-Security-Policy") or ()
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return any("script-src-attr 'none'" in policy for policy in policies)
