"""What the Makefile makes of a checkout works wherever the checkout lies."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support import ROOT


def test_its_environment_starts_under_any_locale_beneath_a_name_with_an_umlaut(tmp_path: Path) -> None:
    checkout = tmp_path / "Jörg M"
    (checkout / "sandbox_kernel").mkdir(parents=True)
    (checkout / "sandbox_kernel/__init__.py").write_text("print('from the checkout')\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(checkout / ".venv")}))
    (packages / "_editable_impl_sandbox_kernel.pth").write_text(f"{checkout}\n", encoding="utf-8")  # as hatchling does

    subprocess.run([ROOT / ".ci/relative", ".venv"], cwd=checkout, check=True)
    done = subprocess.run(
        [checkout / ".venv/bin/python", "-I", "-c", "import sandbox_kernel"],
        env={"LC_ALL": "C"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "from the checkout\n"), done.stderr


def test_each_environment_of_the_makefile_is_made_so() -> None:
    rules = re.findall(r"^\$\(VENV\)/\.for-.*\n(?:\t.*\n)+", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(rules) == 2
    assert all(rule.index("--editable") < rule.index(".ci/relative $(VENV)") for rule in rules)
