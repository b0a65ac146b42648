"""Every entry point has the network, says what it allows, and carries the codes of what was denied."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.kernel.proxy import Proxy
from sandbox_kernel.sdk.values import NetworkUsage
from sandbox_kernel.session.serving.kernel_info import kernel_info

RULES = ("api.example.org", "*.data.example.org")
SECRET = {"API_KEY": {"env": "A_VARIABLE_OF_MINE", "hosts": ["api.example.org"]}}


def loaded(code: str) -> set[str]:
    """Return the modules of the plugin that a program has after it, but for how its settings are written."""
    program = (
        f"{code}\nimport sys, json\n"
        "ours = [name for name in sys.modules if name.startswith('sandbox_kernel.plugins.network.')]\n"
        "more = [name for name in ('h11', 'cryptography') if name in sys.modules]\n"
        "print(json.dumps([name for name in ours + more if not name.endswith('.settings')]))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    return set(json.loads(done.stdout))


PROGRAMS = {
    "the SDK": (
        "from sandbox_kernel.sdk.client import AsyncSandbox\n"
        "from sandbox_kernel.config.sources import resolve\n"
        "AsyncSandbox(resolve({values}))"
    ),
    "a kernel process": (
        "import tempfile, pathlib, sandbox_kernel.__main__\n"
        "from sandbox_kernel.config.sources import resolve\n"
        "from sandbox_kernel.kernel import head_start, proxy\n"
        "folder = tempfile.TemporaryDirectory()\n"
        "file = pathlib.Path(folder.name, 'connection.json')\n"
        'file.write_text(\'{{"key": "k"}}\')\n'
        "settings = resolve({values} | {{'engine': 'unix:///nobody/listens'}})\n"
        "begun = head_start.head_start(str(file), settings)\n"
        "proxy.Proxy(str(file), {{'key': 'k'}}, settings, begun)\n"
        "folder.cleanup()"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("entry", PROGRAMS)
def test_without_a_rule_nothing_of_the_network_is_loaded(entry: str) -> None:
    """Start-up time is a feature, and so is code that is not there."""
    assert loaded(PROGRAMS[entry].format(values={})) == set()


@pytest.mark.slow
@pytest.mark.parametrize("entry", PROGRAMS)
def test_control_with_a_rule_it_is_loaded_but_nothing_of_secrets(entry: str) -> None:
    found = loaded(PROGRAMS[entry].format(values={"network": list(RULES)}))
    assert {"sandbox_kernel.plugins.network.session_network", "sandbox_kernel.plugins.network.egress", "h11"} <= found
    assert not {"sandbox_kernel.plugins.network.secrets", "cryptography"} & found


# --- what each says is allowed ---------------------------------------------------------------------------------------


async def test_kernel_info_has_the_rules_and_the_names_of_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_VARIABLE_OF_MINE", "sk-Ha7fVerySecretValue")
    settings = resolve({"network": list(RULES), "secrets": SECRET, "engine": "unix:///nobody/listens"})
    proxy = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, settings)
    info = kernel_info(proxy.session, proxy.engine_address, file_messages={})
    assert info["sandbox"]["network"] == list(RULES)
    assert info["sandbox"]["secrets"] == ["API_KEY"]
    assert "reaches nothing but api.example.org, *.data.example.org" in info["banner"]
    assert "sk-Ha7f" not in json.dumps(info)
    assert "A_VARIABLE_OF_MINE" not in json.dumps(info)
    await proxy.session.close()


async def test_a_kernel_whose_secret_is_not_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts no sandbox: every cell is answered with what is missing."""
    monkeypatch.delenv("A_VARIABLE_OF_MINE", raising=False)
    proxy = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, resolve({"network": RULES, "secrets": SECRET}))
    assert proxy.problem is not None
    assert "A_VARIABLE_OF_MINE, which is not set" in str(proxy.problem)
    await proxy.session.close()


def test_the_sdk_says_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox_kernel import AsyncSandbox, Sandbox

    monkeypatch.delenv("A_VARIABLE_OF_MINE", raising=False)
    settings = resolve({"network": RULES, "secrets": SECRET})
    for entry in (AsyncSandbox, Sandbox):
        with pytest.raises(ConfigurationError, match="A_VARIABLE_OF_MINE, which is not set"):
            entry(settings)
    info = AsyncSandbox(resolve({"network": RULES})).info
    assert (info.network, info.secrets) == (RULES, ())
    assert AsyncSandbox(Settings()).info.network == "none"
    assert AsyncSandbox(Settings()).network_usage == NetworkUsage()
