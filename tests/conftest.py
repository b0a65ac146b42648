"""Real kernels for the tests: installed, started through jupyter_client, and shown to be gone afterwards."""

from __future__ import annotations

import collections
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from sandbox_kernel.plugins import index
from tests.support import roots
from tests.support.examples import examples
from tests.support.kernels import ENGINE, LIMITS, Kernel, close_all, containers_of, eventually, install, said
from tests.support.turns import Turns, TurnsPlugin

SLOWEST = 10
TURNS = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--corpus", action="append", default=[], metavar="FILE",
        help="cases for tests/browser/test_hostile.py, which tests/browser/README.md describes; may be repeated",
    )  # fmt: skip


def _end_unused_brokers() -> None:
    if index.is_here("broker"):
        from tests.plugins.broker.brokers import end_unused

        end_unused()


def pytest_configure(config: pytest.Config) -> None:
    # A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # jsonschema, and so nbformat, makes a parser of IRIs at its import, if it finds that library: seconds for no test.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    config.addinivalue_line("markers", "alone: needs the machine for itself; no other worker runs a test meanwhile")
    config.addinivalue_line("markers", "slow: takes seconds, of an attack on time or of programs; not for every save")
    config.addinivalue_line("markers", "long: guards what seldom changes, for long; `make test-long` runs these alone")
    hypothesis.settings.register_profile("checkout", examples())
    hypothesis.settings.load_profile("checkout")
    given = getattr(config, "workerinput", {})
    if not given:
        _end_unused_brokers()
    if "turns" in given:
        config.pluginmanager.register(TurnsPlugin(Turns(Path(given["turns"])), given["workercount"]))
        roots.shared.append(Path(given["turns"]))
    elif config.getoption("numprocesses", None):
        config.stash[TURNS] = tempfile.TemporaryDirectory(prefix="sandbox-kernel-turns-", ignore_cleanup_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage meanwhile: next to all that is made stays, and to go through it again costs half the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make only: what is there before the first of them stays."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the files of a whole run that take longest: seconds of all workers, with their fixtures."""
    if not config.getoption("numprocesses", None):
        return
    seconds: collections.Counter[str] = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]
    terminalreporter.section(f"the {SLOWEST} slowest files")
    for name, spent in seconds.most_common(SLOWEST):
        terminalreporter.write_line(f"{spent:6.1f} s  {name}")


def pytest_unconfigure(config: pytest.Config) -> None:
    if folder := config.stash.get(TURNS, None):
        folder.cleanup()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where all workers meet."""
    node.workerinput["turns"] = node.config.stash[TURNS].name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show with a test that fails how its cells ended that did not end well: seldom does a failure come again."""
    report = yield
    if report.failed and said:
        report.sections.append(("Cells that did not end well", "\n".join(said)))
    if call.when == "teardown":
        said.clear()
    return report


@pytest.fixture(scope="session")
def image() -> str:
    return os.environ.get("SANDBOX_KERNEL_TEST_IMAGE", "sandbox-kernel:data")


@pytest.fixture(autouse=True, scope="session")
def _own_runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Connection files of killed kernels go where pytest cleans up."""
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))
    yield
    if before is None:
        del os.environ["JUPYTER_RUNTIME_DIR"]
    else:
        os.environ["JUPYTER_RUNTIME_DIR"] = before


@pytest.fixture(autouse=True, scope="session")
def audit_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The key of audits that name none is no file of the user's who runs the tests."""
    path = tmp_path_factory.mktemp("key") / "audit.key"
    with pytest.MonkeyPatch.context() as patch:
        if index.is_here("record"):
            patch.setattr("sandbox_kernel.plugins.record.keys.default_path", lambda: str(path))
        yield path


@pytest.fixture(scope="session")
def launch_kernel(tmp_path_factory: pytest.TempPathFactory, image: str, audit_key: Path) -> Callable[..., Kernel]:
    """Return a function that installs a kernel with settings, once, and starts it; the caller closes it."""
    installed: dict[tuple[str, ...], KernelSpecManager] = {}

    def launch(*settings: str) -> Kernel:
        if "--audit" in settings:
            settings = (*settings, "--audit-key", str(audit_key))
        if ENGINE != "docker":
            settings = ("--limits", LIMITS, *settings, "--engine", ENGINE)  # a test's own limits come later
        if settings not in installed:
            installed[settings] = install(tmp_path_factory.mktemp("spec"), "--image", image, *settings)
        manager = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=installed[settings])
        manager.start_kernel()
        try:
            return Kernel(manager)
        except BaseException:
            manager.shutdown_kernel(now=True)
            raise

    return launch


@pytest.fixture
def start_kernel(launch_kernel: Callable[..., Kernel]) -> Iterator[Callable[..., Kernel]]:
    """Start kernels of a test's own; none may leave a container."""
    kernels: list[Kernel] = []

    def start(*settings: str) -> Kernel:
        kernels.append(launch_kernel(*settings))
        return kernels[-1]

    yield start
    close_all(kernels)


@pytest.fixture(scope="module")
def kernel(launch_kernel: Callable[..., Kernel]) -> Iterator[Kernel]:
    """A kernel that the tests of a module share: they leave it usable."""
    shared = launch_kernel()
    pid = shared.pid
    yield shared
    shared.close()
    eventually(lambda: not containers_of(pid), 10, "its container is gone")
