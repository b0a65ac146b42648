"""Variables of one call: what the cells around it are, per language, for values that are hostile to its syntax."""

from __future__ import annotations

import json
import subprocess

import pytest

from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.sdk.environment_variables import around

HOSTILE = "it's \"a\\n$(echo ran)`echo ran`\n${HOME}\tü€\U0001f600\x7f\x01 \\"


def cells(kernel: str, **envs: str) -> tuple[str, str]:
    found = around(envs, Settings(kernel=kernel))
    assert found is not None
    return found


def bash(script: str) -> str:
    done = subprocess.run(["bash", "--norc"], input=script.encode(), capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode()


def test_bash_sets_a_value_as_it_is() -> None:
    before, _ = cells("bash", FOO=HOSTILE)
    assert bash(f"{before}printenv FOO") == f"{HOSTILE}\n"


def test_bash_puts_back_what_was_there() -> None:
    given = "export FIRST='it was $(echo \"there\")'\nPLAIN='not exported'\nset -eu\n"
    before, after = cells("bash", FIRST="1", PLAIN="2", NEW="")
    again, _ = cells("bash", FIRST="3")
    show = "declare -p FIRST PLAIN; echo ${NEW-none} ${_sandbox_variables-none}\n"
    assert bash(f"{given}{before}{again}printenv FIRST PLAIN NEW\n{after}{show}") == f"3\n2\n\n{bash(given + show)}"


@pytest.mark.parametrize("kernel", ["ir", "bash", "deno"])
def test_no_character_of_a_value_is_code(kernel: str) -> None:
    before, after = cells(kernel, FOO=HOSTILE)
    written = json.dumps([["FOO", HOSTILE]]) if kernel == "deno" else "".join(f"\\x{b:02x}" for b in HOSTILE.encode())
    assert written in before
    assert before.replace(written, "") == cells(kernel, FOO="")[0].replace(json.dumps([["FOO", ""]]), "")
    assert "echo" not in after


def test_a_value_that_no_process_can_have_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        cells("ir", FOO="\ud800")


def test_a_kernel_without_such_cells_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refused:
        around({"FOO": "1"}, Settings(kernel="julia"))
    assert refused.value.code.code == UsageCode.NO_ENVS_OF_A_CALL.code
    assert around({}, Settings(kernel="julia")) is None
