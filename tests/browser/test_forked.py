"""JupyterLab with a kernel that is forked from what the user's own broker has prepared."""

from __future__ import annotations

from pathlib import Path

import psutil

from tests.browser.lab import WAIT, Lab, eventually, install, running_lab
from tests.browser.person import Person
from tests.support.brokers import a_broker
from tests.support.launching import words_of


def launchers(lab: Lab) -> list[psutil.Process]:
    """Return the processes that the server knows as its kernels."""
    return [one for one in psutil.Process(lab.pid).children() if "sandbox_kernel" in words_of(one.pid)]


def test_a_person_s_kernel_is_forked_and_restarts_and_ends_as_ever(tmp_path: Path, image: str) -> None:
    with a_broker("--kernels", "--pool", "1") as daemon:
        install(tmp_path / "kernels", "quick", image, "--engine", daemon.address)
        (tmp_path / "lab").mkdir()
        with running_lab(tmp_path / "lab", tmp_path / "kernels") as lab:

            def prepared() -> list[int]:
                children = psutil.Process(daemon.process.pid).children()
                return [one.pid for one in children if any("kernel.prepared" in word for word in words_of(one.pid))]

            def forked() -> list[int]:
                return [child.pid for pid in prepared() for child in psutil.Process(pid).children()]

            def opened() -> bool:
                lab.open("quick", "open('kept', 'w').write('x'); 6 * 7")
                lab.run_all()
                assert lab.text(0) == ["42"]
                if not forked():  # the first one asks for what is prepared
                    lab.renew()
                return bool(forked())

            eventually(opened, "a kernel is forked", 4 * WAIT)
            [launcher], [before] = launchers(lab), forked()
            assert words_of(launcher.pid)[3].endswith("launch.py")
            # The extension knows it as one of ours, whose files it may show.
            Person(lab, tmp_path / "pictures").see(".sk-StatusLine-button", "no network")
            [kernel] = lab.ask("api/kernels")
            lab.ask(f"api/kernels/{kernel['id']}/restart", "POST")
            eventually(lambda: forked() and forked() != [before], "another kernel is forked")
            lab.open("quick", "open('kept').read()")
            lab.run_all()
            assert lab.text(0) == ["'x'"]
            lab.renew()
            eventually(lambda: not forked() and not launchers(lab), "nothing of it is left")
