"""The browsers that tests and fuzzers need, installed where that is possible."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from sandbox_kernel.setup.command_steps import Steps
from sandbox_kernel.setup.engine_setup import install_packages


def install_browser(progress: Callable[[str], None] = print) -> bool:
    """Install Chromium, its driver and Firefox where that is possible; return whether the first two are there."""
    programs = {"chromium": "chromium", "chromedriver": "chromium-driver", "firefox-esr": "firefox-esr"}
    missing = [package for program, package in programs.items() if not shutil.which(program)]
    if missing and shutil.which("apt-get") and os.geteuid() == 0:
        install_packages(missing, Steps(progress))
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))
