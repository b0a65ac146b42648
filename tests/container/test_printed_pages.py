"""Every page's shell lines and Python as they are printed, in the page's order, by a reader who has only what it says.

A reader has an environment and a home of its own, in an empty folder, or in a checkout where the page says so.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import ROOT, printed_page
from tests.support.index import wheel
from tests.support.kernels import eventually
from tests.support.pages import Step, steps

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="a reader with a home and an /etc of its own is root's to make"),
]

CLUSTER = "needs a cluster: tests/plugins/kubernetes/cluster (make test-kubernetes)"
CONFIG = "lines of a config file"
FRAMEWORKS = "each needs a framework and a language model: tests/plugins/frameworks"
LANGUAGES = "needs the image of R, minutes of building: tests/languages (make test-languages)"
QEMU = "needs QEMU: tests/plugins/qemu (make test-qemu)"
SYSTEMD = "needs a machine that systemd started"
NOT_RUN = {
    "README.md": {"make test": "runs this test"},
    "docs/batch.md": {"python: c.Sandbox": CONFIG},
    "docs/broker.md": {
        "systemctl": SYSTEMD,
        "curl": f"asks the broker of the unit; {SYSTEMD}: tests/plugins/broker/unit/test_user_figures.py",
    },
    "docs/chat.md": {"vllm serve": "a large model; tests/frameworks/test_gpt_oss.py has its tool alone"},
    "docs/install.md": {
        "sandbox-kernel build --engine bubblewrap": "takes minutes: tests/plugins/bubblewrap/unit/test_roots.py",
        "python: c.Sandbox": CONFIG,
    },
    "docs/integrations.md": {"python: ": FRAMEWORKS},
    "docs/jupyter-server.md": {"python: ": "a part of a program: tests/container/test_server_recipe.py"},
    "docs/jupyterlab.md": {"sandbox-kernel install --user --kernel ir": LANGUAGES},
    "docs/jupyterhub.md": {"": "needs a JupyterHub: tests/hub (make hub)"},
    "docs/kubernetes.md": dict.fromkeys(("sandbox-kernel run", "helm", "kubectl", "sandbox-kernel doctor"), CLUSTER),
    "docs/languages.md": {
        "sandbox-kernel build --kind r": LANGUAGES,
        "sandbox-kernel install --user --image sandbox-kernel:r": LANGUAGES,
        'python: from sandbox_kernel import Sandbox\n\nwith Sandbox(image="sandbox-kernel:r"': LANGUAGES,
        "sandbox-kernel build --engine bubblewrap": "an image of the reader's: tests/languages/test_own_kernelspec.py",
    },
    "docs/monitor.md": {"python: ": "a program of the reader's: tests/plugins/monitor/unit/test_alerts.py"},
    "docs/operating.md": {
        "systemctl": SYSTEMD,
        "docker image ls": "removes images that others on this machine use",
    },
    "docs/qemu.md": {"": QEMU},
    "docs/sdk.md": {"python: name = sandbox.snapshot": QEMU},
    "docs/secrets.md": {"python: c.Sandbox": CONFIG},
    "docs/serve.md": {
        "python: ": "needs E2B's client: tests/plugins/serve/container/test_official_client.py (make recipes)",
        "sandbox-kernel build --engine qemu": QEMU,
        "sandbox-kernel serve --engine qemu": QEMU,
        "docker compose": "fetches an image of Python: tests/plugins/serve/unit/test_start.py reads the file",
        "systemctl": SYSTEMD,
    },
    "docs/tutorial.md": {"make demo": "the first line of README.md, which is run"},
}
"""By page, how a line or an example begins that is not run here (`python: ` is before an example), and why."""

GOES_ON = {
    "sandbox-kernel serve": "for clients of Open Terminal",
    "sandbox-kernel broker": "listening at",
    "sandbox-kernel mcp --http": "for clients of Open Terminal",
    "jupyter lab": "is running at",
    "jupyter server": "is running at",
    "jupyter kernel ": "Connection file",
    "make lab": "is running at",
}
"""How a line begins that goes on until it is ended, and a pattern of what it prints when it is ready."""
ENDS = " --check"
"""How a line ends that goes on in no case."""

CELL: dict[str, object] = {
    "cell_type": "code",
    "id": "one",
    "metadata": {},
    "outputs": [],
    "execution_count": None,
    "source": "6 * 7",
}
CONTENTS = {
    ".csv": "region,amount\nnorth,3\nsouth,5\n",
    ".ipynb": json.dumps({"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
    ".py": "print(6 * 7)\n",
    ".txt": "humanize\n",
    ".yaml": "year: 2024\n",
}
"""What is in a file that the page calls one of the reader's own, by its suffix."""
AWAITS = "python -m asyncio"
"""What a page has to say where `await` stands outside of a function."""
MOUNTS = """
set -e
mount -t tmpfs tmpfs "$1"
cp -a /etc "$1/etc"
sed -i "s|^\\(root:.*\\):[^:]*:|\\1:$HOME:|" "$1/etc/passwd"
mount --bind "$1/etc" /etc
for folder in /usr/local /var/lib; do
    own="$1/own$folder"
    mkdir -p "$own/upper" "$own/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$own/upper,workdir=$own/work" "$folder"
done
mkdir "$1/run"
if [[ -S /run/docker.sock ]]; then touch "$1/run/docker.sock"; mount --bind /run/docker.sock "$1/run/docker.sock"; fi
mount --rbind "$1/run" /run
shift
exec "$@"
"""
"""A view of the machine with an /etc, /run, /usr/local and /var/lib of the reader's own; root's home is $HOME."""
PLAIN_VIEW = ("docs/large-data.md",)
"""Docker mounts no dataset that a process with another view opened. The page removes the volumes that it makes."""
REMOVAL = "docs/operating.md"
LEFT = (
    "{ find ~ ~/../env /etc /run /usr/local -path ~/sandbox-new -prune -o -iname '*sandbox[-_]kernel*' -print;"
    " grep sandbox-kernel /etc/passwd; ls -d /var/lib/sandbox-kernel*; } 2> /dev/null"
)
"""What a machine has of this package, besides the environment that the page on upgrades makes."""
KEPT_VARIABLES = ("PIP_", "SSL_", "DOCKER_HOST", "LANG")
PROGRAMS = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")))


def taken(page: str) -> list[Step]:
    """Return what is run of a page."""
    left_out = tuple(NOT_RUN.get(page, ()))
    return [step for step in steps(page) if not step.label.startswith(left_out)]


def row_of(step: Step) -> str:
    """Return the row for a line that goes on; nothing for another one."""
    if step.kind != "shell" or step.source.endswith(ENDS):
        return ""
    return next((row for row in GOES_ON if step.source.startswith(row)), "")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name is short: the sockets of a user lie below its home."""
    made = Path(tempfile.mkdtemp(prefix="page-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def bring(page: str, work: Path) -> None:
    """Make what the page says that a reader has: a checkout, and files and folders of the reader's own."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    if re.search(r"\bin (?:a|the) checkout", text, re.IGNORECASE):
        copy = 'git ls-files -z | xargs -0 cp --parents --target-directory "$0"'
        subprocess.run(["bash", "-c", copy, work], cwd=ROOT, check=True, timeout=60)
    for sentence in re.split(r"(?<=[.:])\s", text):
        for name in re.findall(r"`(\w[\w./-]*)`", sentence) if "of yours" in sentence else ():
            path = work / name
            if name.endswith("/"):
                path.mkdir(parents=True)
                path /= "one.ipynb"
            path.parent.mkdir(exist_ok=True)
            if path.suffix == ".whl":
                wheel(path.parent, *path.name.split("-")[:2])
            elif path.suffix in CONTENTS:
                path.write_text(CONTENTS[path.suffix], encoding="utf-8")


def environment(prefix: Path) -> None:
    """Make an environment that has what is in that of the tests, and into which a page installs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True, timeout=60)
    [site], [theirs] = (Path(one).glob("lib/python3*/site-packages") for one in (prefix, sys.prefix))
    (site / "of_tests.pth").write_text(f"import site; site.addsitedir({str(theirs)!r})\n")
    shebang = f"#!{sys.prefix}/bin/python".encode()
    for script in Path(sys.prefix, "bin").iterdir():
        if (code := script.read_bytes()).startswith(shebang):
            (prefix / "bin" / script.name).write_bytes(code.replace(shebang, f"#!{prefix}/bin/python".encode(), 1))
            (prefix / "bin" / script.name).chmod(0o755)
    for shared in (*Path(sys.prefix, "share/jupyter").iterdir(), Path(sys.prefix, "etc/jupyter")):
        if shared.name != "kernels":
            shutil.copytree(shared, prefix / shared.relative_to(sys.prefix), symlinks=True)


def of_reader(home: Path) -> list[psutil.Process]:
    """Return what still runs of a reader."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home):
                found.append(process)
        except psutil.Error:
            continue
    return found


def read(page: str, does: list[Step], folder: Path) -> subprocess.CompletedProcess[str]:
    """Have a reader do what a page says."""
    home, prefix, work = folder / "home", folder / "env", folder / "work"
    todo = [(step.line, step.kind, step.source, row, GOES_ON.get(row)) for step in does for row in [row_of(step)]]
    awaits = AWAITS in (ROOT / page).read_text(encoding="utf-8")
    (folder / "page").write_text(json.dumps({"name": page, "await": awaits, "steps": todo}), encoding="utf-8")
    names = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
    names |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(folder / "run"), "PATH": f"{prefix}/bin:{PROGRAMS}"}
    names |= {"PIP_NO_COMPILE": "1"}  # which takes half of pip's time
    lines = [step.source for step in does if step.kind == "shell"]
    if lines and "sandbox-kernel setup" not in lines:  # a reader has read how to install
        install = [str(prefix / "bin/sandbox-kernel"), "install"]
        subprocess.run(install, env=names, cwd=work, capture_output=True, check=True, timeout=60)
    mounts = ["unshare", "--mount", "bash", "-c", MOUNTS, "bash", str(folder / "view")]
    view: list[str] = [] if page in PLAIN_VIEW else mounts
    program = Path(printed_page.__file__).read_text(encoding="utf-8")
    return subprocess.run(
        [*view, str(prefix / "bin/python"), "-c", program, str(folder / "page")],
        cwd=work, env=names, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip


def runs(page: str, does: list[Step], folder: Path) -> None:
    """Have a reader do what a page says, without a failure, and see that nothing of it still runs."""
    for name in ("home", "home/.jupyter", "run", "work", "view"):
        (folder / name).mkdir(mode=0o755 if name == "work" else 0o700)
    # Jupyter's servers want a word of root's, and this reader is root.
    (folder / "home/.jupyter/jupyter_server_config.json").write_text('{"ServerApp": {"allow_root": true}}')
    bring(page, folder / "work")
    environment(folder / "env")
    try:
        with Path(tempfile.gettempdir(), "sandbox-kernel-pages").open("w") as turn:
            if any(row_of(step) for step in does):  # it listens at a port that other pages have, too
                fcntl.flock(turn, fcntl.LOCK_EX)
            done = read(page, does, folder)
    finally:
        for process in of_reader(folder / "home"):
            if "broker" in process.cmdline():  # the reader's own, which waits half an hour for the next line
                process.send_signal(signal.SIGTERM)
        for tag in {tag for step in does for tag in re.findall(r"--tag (\S+)", step.source)}:
            subprocess.run(["docker", "image", "rm", tag], capture_output=True, timeout=60, check=False)
    print(done.stdout[-5000:], done.stderr[-5000:])
    assert done.returncode == 0, f"{page}: {done.stderr[-4000:]}"
    eventually(lambda: not of_reader(folder / "home"), 30, "nothing of the reader's runs")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page for page in PAGES if taken(page) and page != REMOVAL])
def test_a_page_runs_as_it_is_printed(page: str, folder: Path) -> None:
    runs(page, taken(page), folder)


@pytest.mark.timeout(600)
def test_a_machine_is_set_up_upgraded_and_left_as_it_was(folder: Path) -> None:
    """What people and operators install by their pages is gone when the last line of docs/operating.md has run."""
    lines = [step for page in ("docs/broker.md", "docs/serve.md") for step in taken(page) if not row_of(step)]
    operator = [step for step in lines if re.search("system/|/usr/local/|--for-all", step.source)]
    assert len(operator) == 9
    there = Step(0, "shell", f"test $({LEFT} | wc -l) -ge 15")
    gone = Step(0, "shell", f'left=$({LEFT} || true); echo $left; test -z "$left"')
    runs(REMOVAL, [*taken("docs/install.md"), *operator, there, *taken(REMOVAL), gone], folder)


def test_what_is_not_run_is_there_and_says_what_runs_it() -> None:
    for page, rows in NOT_RUN.items():
        for row, reason in rows.items():
            assert any(step.label.startswith(row) for step in steps(page)), f"{page}: {row}"
            assert all((ROOT / test).exists() for test in re.findall(r"tests/[\w/.]+\w", reason)), reason
    assert sum(step.kind == "shell" for page in PAGES for step in taken(page)) >= 100
