"""What is in the images, seen from a container as bare as a session's: no network, a read-only root, no rights."""

from __future__ import annotations

import io
import itertools
import json
import re
import secrets
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.package_files import brought
from sandbox_kernel.engines import shipping
from sandbox_kernel.plugins.requirements.requirements import read
from sandbox_kernel.setup import engine_setup, image_build
from sandbox_kernel.wheels import image_wheels
from sandbox_kernel.wheels.pip_process import PYTHON_VERSION, WheelTarget, platform_tags
from tests.support import ROOT
from tests.support.engines import IMAGE

RECIPES = brought("images")
KINDS = ("base", "data")

IMPORT_NAMES = {
    "vl-convert-python": "vl_convert",
    "beautifulsoup4": "bs4",
    "pillow": "PIL",
    "python-dateutil": "dateutil",
    "msoffcrypto-tool": "msoffcrypto",
    "python-docx": "docx",
    "python-pptx": "pptx",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "statsmodels": "statsmodels.api",
}
"""Where the name to import is not the package's own."""

Run = Callable[..., Any]


def packages(kind: str) -> list[str]:
    """Return the names in a requirements input, those that it takes over from another one included."""
    names: list[str] = []
    for line in (RECIPES / f"{kind}.in").read_text().splitlines():
        if line.startswith("-r "):
            names += packages(line.removeprefix("-r ").removesuffix(".in"))
        elif line and not line.startswith("#"):
            names.append(re.split(r"[<>=~!\[; ]", line)[0])
    return names


@pytest.fixture(scope="module")
def client() -> Any:
    """A client of the engine, for tests that look into built images."""
    client = engine_setup.connect(engine_setup.require_engine().host, seconds=60)
    yield client
    client.close()


@pytest.fixture(scope="module")
def run(client: Any) -> Run:
    """Run Python code in a container of an image, and return what it prints last, read as JSON."""

    def run(kind: str, code: str, *, seconds: float = 120, home: bool = False) -> Any:
        try:
            client.images.get(f"sandbox-kernel:{kind}")
        except ImageNotFound:
            pytest.fail(f"the image sandbox-kernel:{kind} is not built: run `make setup`", pytrace=False)
        start = "import os, shutil; shutil.copytree('/opt/sandbox/home', '/tmp/home')\n" if home else ""
        container = client.containers.create(
            f"sandbox-kernel:{kind}",
            ["python3", "-W", "error::ImportWarning", "-c", start + textwrap.dedent(code)],
            network_mode="none",
            read_only=True,
            tmpfs={"/tmp": "size=64m", "/mnt/data": "size=64m,mode=0700,uid=300123456"},
            user="300123456:300123456",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit="2g",
            environment={"HOME": "/tmp/home"},
            working_dir="/mnt/data",
        )
        try:
            container.start()
            code_ = container.wait(timeout=seconds)["StatusCode"]
            errors = container.logs(stdout=False).decode()
            assert code_ == 0, errors
            return {"out": json.loads(container.logs(stderr=False).decode().splitlines()[-1]), "err": errors}
        finally:
            container.remove(force=True)

    return run


# --- the locks --------------------------------------------------------------------------------------------------------


LOCKS = [
    *((name, PYTHON_VERSION) for name in image_wheels.FOR_EVERY_PYTHON),
    *itertools.product(KINDS, image_wheels.LOCKED_FOR),
]


@pytest.mark.parametrize(("name", "python"), LOCKS)
def test_lock_pins_every_package_by_hash_and_names_no_address(name: str, python: str) -> None:
    text = image_wheels.lock_of(RECIPES, name, python).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(re.match(r"[\w.-]+==\S+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\\n|$))+$", entry) for entry in entries)
    assert not re.search(r"https?:|file:|--index|--find-links|(^|\s)/", text)


@pytest.mark.parametrize("python", image_wheels.LOCKED_FOR)
def test_data_lock_keeps_every_version_of_base_lock(python: str) -> None:
    base, data = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", image_wheels.lock_of(RECIPES, kind, python).read_text(), re.M))
        for kind in KINDS
    )
    assert base.items() <= data.items()


@pytest.mark.parametrize(("kind", "python"), LOCKS[1:])
def test_lock_holds_every_package_that_is_asked_for(kind: str, python: str) -> None:
    locked = set(re.findall(r"^([\w.-]+)==", image_wheels.lock_of(RECIPES, kind, python).read_text(), re.M))
    assert set(packages(kind)) <= locked


# --- what is inside ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_runs_with_rights_of_another_user(run: Run, kind: str) -> None:
    found = run(
        kind,
        """
        import json, os
        found, seen = [], 0
        for folder, names, files in os.walk("/"):
            names[:] = [name for name in names if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
            for path in (os.path.join(folder, name) for name in names + files):
                seen += 1
                attributes = [] if os.path.islink(path) else os.listxattr(path)
                if os.lstat(path).st_mode & 0o6000 or "security.capability" in attributes:
                    found.append(path)
        print(json.dumps([found, seen]))
        """,
    )["out"]
    assert found[0] == []
    assert found[1] > 3000


@pytest.mark.parametrize("kind", KINDS)
def test_no_package_manager_and_no_compiler(run: Run, kind: str) -> None:
    code = """
        import importlib.util, json, shutil, sys
        tools = ["apt", "apt-get", "dpkg", "dpkg-deb", "perl", "gcc", "g++", "cc", "c++", "clang", "ld",
                 "as", "make", "go", "rustc", "wget", "su", "sudo", "mount", "passwd"]
        modules = ["ensurepip", "setuptools"]
        print(json.dumps([[tool for tool in tools if shutil.which(tool)],
                          [name for name in modules if importlib.util.find_spec(name)]]))
        """
    assert run(kind, code)["out"] == [[], []]


@pytest.mark.parametrize("kind", KINDS)
def test_no_command_for_namespaces_mounts_devices_and_the_machine(run: Run, kind: str) -> None:
    """And what people use in cells is there."""
    code = """
        import json, os, shutil
        os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        tools = ["nsenter", "unshare", "chroot", "pivot_root", "switch_root", "setpriv", "runuser", "mount", "umount",
                 "losetup", "lsblk", "findmnt", "lslocks", "lsns", "dmesg", "capsh", "ip", "ss", "swapon", "blkid",
                 "fsck", "mkfs", "wipefs", "agetty", "killall5", "hwclock", "rtcwake", "readprofile"]
        used = ["sh", "bash", "ls", "cat", "grep", "sed", "awk", "tar", "gzip", "zcat", "find", "xargs", "sort", "head",
                "tail", "wc", "cut", "tr", "diff", "cp", "mv", "rm", "mkdir", "ln", "stat", "du", "df", "date", "env",
                "sleep", "timeout", "nice", "nproc", "taskset", "which", "id", "uname", "tee", "seq", "lscpu",
                "curl", "git", "jq", "unzip", "zip"]
        print(json.dumps([[tool for tool in tools if shutil.which(tool)],
                          [tool for tool in used if not shutil.which(tool)]]))
        """
    assert run(kind, code)["out"] == [[], []]


def test_git_archives_and_pip_work_and_what_pip_installs_is_found(run: Run) -> None:
    """Without a network each says so at once."""
    code = """
        import json, subprocess, zipfile
        def sh(line):
            ran = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=30)
            return (ran.stdout.strip() or ran.stderr.strip()).rpartition("\\n")[2]
        who = "git -c user.email=a@b -c user.name=n"
        sh(f"git init -q one; cd one; echo text > file; git add file; {who} commit -qm first")
        about = "greeting-1.0.dist-info"
        with zipfile.ZipFile("greeting-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("greeting.py", "TEXT = 1")
            wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
            wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr(f"{about}/RECORD", "")
        sh("pip install -q ./greeting-1.0-py3-none-any.whl")
        print(json.dumps([
            sh("git clone -q one two; cat two/file; git -C two submodule status"),
            sh("zip -qr one.zip one; unzip -qo one.zip -d three; ls three"), sh("echo '[1, 2]' | jq '.[1]'"),
            sh("curl -s file:///mnt/data/one/file"), sh("python3 -c 'import greeting; print(greeting.__file__)'"),
            "resolve host" in sh("git clone https://a.invalid/b"),
            "No matching" in sh("pip install none-of-that-name 2>&1"),
        ]))
        """
    found = run("data", code, home=True)["out"]
    place = "/tmp/home/.local/lib/python3.13/site-packages/greeting.py"
    assert found == ["text", "one", "2", "text", place, True, True]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_build_is_left(run: Run, kind: str) -> None:
    code = """
        import json, os
        print(json.dumps([sorted(os.listdir("/opt/sandbox")), os.listdir("/mnt/data"), os.path.exists("/var/lib/dpkg"),
                          os.path.isdir("/root/.cache")]))
        """
    assert run(kind, code)["out"] == [["home"], [], False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_python_and_ipykernel_are_the_locked_ones(run: Run, kind: str) -> None:
    code = """
        import importlib.metadata, json, locale, os, sys
        print(json.dumps([sys.version_info[:2], importlib.metadata.version("ipykernel"), os.environ["LANG"],
                          locale.getpreferredencoding(), os.popen("python -c 'print(1)'").read()]))
        """
    locked = re.search(r"^ipykernel==(\S+)", (RECIPES / f"{kind}.lock").read_text(), re.M)
    assert locked
    assert run(kind, code)["out"] == [[3, 13], locked[1], "C.UTF-8", "UTF-8", "1\n"]


@pytest.mark.long
def test_every_package_of_data_imports(run: Run) -> None:
    names = [IMPORT_NAMES.get(name, name.replace("-", "_")) for name in packages("data")]
    result = run(
        "data",
        f"""
        import importlib, json
        failed = {{}}
        for name in {names!r} + ["ipykernel.kernelapp", "debugpy", "matplotlib.pyplot", "sqlite3", "zoneinfo"]:
            try:
                importlib.import_module(name)
            except Exception as error:
                failed[name] = repr(error)
        print(json.dumps(failed))
        """,
        home=True,
    )
    assert result["out"] == {}
    assert len(names) > 25


def test_bytecode_of_the_kernel_is_in_the_image(run: Run) -> None:
    """Without it a read-only root compiles everything at each start, which takes seconds."""
    code = """
        import json, sys
        import ipykernel.kernelapp
        import pathlib
        modules = [module for module in list(sys.modules.values()) if getattr(module, "__cached__", None)]
        print(json.dumps([len(modules), [m.__name__ for m in modules if not pathlib.Path(m.__cached__).exists()]]))
        """
    count, missing = run("base", code)["out"]
    assert count > 300
    assert missing == []


def test_bytecode_is_not_stale(run: Run) -> None:
    """A copied image may lose the times of its files, and then Python would silently compile again."""
    code = """
        import contextlib, io, json, subprocess, sys
        log = subprocess.run([sys.executable, "-v", "-c", "import ipykernel.kernelapp"], capture_output=True, text=True)
        print(json.dumps([log.stderr.count("matches /"), log.stderr.count("could not create"),
                          log.stderr.count("bytecode is stale")]))
        """
    matches, written, stale = run("base", code)["out"]
    assert matches > 300
    assert (written, stale) == (0, 0)


def test_matplotlib_draws_without_building_its_font_cache(run: Run) -> None:
    result = run(
        "data",
        """
        import json, logging, os, time
        logging.basicConfig(level=logging.INFO)
        import matplotlib
        matplotlib.use("agg")
        import matplotlib.pyplot as plt, matplotlib.font_manager as fonts
        plt.plot([1, 2, 3]); plt.title("Überschrift"); plt.savefig("/mnt/data/plot.png")
        size = os.path.getsize("/mnt/data/plot.png")
        print(json.dumps([size, fonts.findfont("DejaVu Sans"), matplotlib.get_cachedir()]))
        """,
        home=True,
    )
    size, font, cache = result["out"]
    assert size > 5000
    assert font.endswith("DejaVuSans.ttf")
    assert cache == "/tmp/home/.cache/matplotlib"
    assert "font cache" not in result["err"]
    assert "generated new fontManager" not in result["err"]


# --- building ---------------------------------------------------------------------------------------------------------


def test_second_build_has_nothing_to_do(client: Any, run: Run) -> None:
    run("data", "print(1)")
    before = client.images.get("sandbox-kernel:data").id
    said: list[str] = []
    assert image_build.build("data", progress=said.append) == "sandbox-kernel:data"
    assert len(said) == 1
    assert "up to date" in said[0]
    assert client.images.get("sandbox-kernel:data").id == before


def test_an_image_of_another_version_is_fitted_to_this_one(client: Any) -> None:
    tag, file = f"sandbox-kernel:fit-{secrets.token_hex(4)}", "/opt/sandbox/home/.cache/agent-bytecode"
    of_another = client.containers.create("sandbox-kernel:base", ["rm", file], entrypoint=[], user="0:0")
    try:
        of_another.start()
        assert of_another.wait()["StatusCode"] == 0
        label = f"LABEL {image_build.BYTECODE_LABEL}=of-another"
        of_another.commit(*tag.split(":"), changes="\n".join([*image_build.SETTINGS, label]))
    finally:
        of_another.remove(force=True)
    look = f"import marshal, os; print(len(marshal.load(open({file!r}, 'rb'))[1]), os.listdir('/opt/sandbox'))"
    try:
        said: list[str] = []
        assert image_build.build("base", tag=tag, progress=said.append) == tag
        assert "fitting" in said[-1]
        now, base = client.images.get(tag), client.images.get("sandbox-kernel:base")
        assert now.labels[image_build.DIGEST_LABEL] == base.labels[image_build.DIGEST_LABEL]
        assert all(now.attrs["Config"][name] == base.attrs["Config"][name] for name in ("Env", "WorkingDir", "Cmd"))
        printed = client.containers.run(tag, ["python3", "-I", "-c", look], entrypoint=[], remove=True).decode()
        assert printed.split(" ", 1)[0] == str(len(shipping.sources()))
        assert "build" not in printed
        assert image_build.build("base", tag=tag, progress=said.append) == tag
        assert "up to date" in said[-1]
    finally:
        client.images.remove(tag, force=True)


@pytest.fixture
def own_wheel(tmp_path: Path) -> Path:
    """A wheel of one module, made by hand so that the test asks no package index."""
    import zipfile

    path = tmp_path / "greeting_for_tests-1.0-py3-none-any.whl"
    meta = "greeting_for_tests-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("greeting_for_tests.py", "TEXT = 'hello'\n")
        wheel.writestr(f"{meta}/METADATA", "Metadata-Version: 2.1\nName: greeting-for-tests\nVersion: 1.0\n")
        wheel.writestr(
            f"{meta}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            f"{meta}/RECORD", f"greeting_for_tests.py,,\n{meta}/METADATA,,\n{meta}/WHEEL,,\n{meta}/RECORD,,\n"
        )
    return path


def test_own_requirements_are_added_to_base(client: Any, run: Run, own_wheel: Path, tmp_path: Path) -> None:
    run("base", "print(1)")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"# mine\n./{own_wheel.name}\n")
    cached = set(image_wheels.cache().glob("custom-*"))
    try:
        tag = image_build.build(
            "base", tag="sandbox-kernel:test-custom", requirements=requirements, progress=lambda _: None
        )
        assert tag == "sandbox-kernel:test-custom"
        code = "import greeting_for_tests, ipykernel; print('\"' + greeting_for_tests.TEXT + '\"')"
        assert run("test-custom", code)["out"] == "hello"
    finally:
        client.images.remove("sandbox-kernel:test-custom", force=True)
        for folder in set(image_wheels.cache().glob("custom-*")) - cached:
            shutil.rmtree(folder)


def test_wheel_that_changes_under_its_name_is_not_taken_for_the_old_one(own_wheel: Path, tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"./{own_wheel.name}\n")
    before = read(requirements).identity
    own_wheel.write_bytes(own_wheel.read_bytes() + b"\0")
    assert read(requirements).identity != before


def test_what_removes_images_leaves_none_whichever_stands_on_which(client: Any) -> None:
    """An image's number says nothing of the order, and the engine refuses one by its number that another stands on."""
    page = (ROOT / "docs/operating.md").read_text()
    [line] = re.findall(r"^    (docker image ls .*)$", page, re.MULTILINE)
    name = f"sandbox-kernel-test-{secrets.token_hex(6)}"
    below = IMAGE
    for label in "abcdef":
        recipe = f"FROM {below}\nLABEL at={name}-{label}".encode()
        below = f"{name}:{label}"
        client.images.build(fileobj=io.BytesIO(recipe), tag=below, rm=True)
    numbers = [client.images.get(f"{name}:{label}").id for label in "abcdef"]
    line = line.replace("'sandbox-kernel'", f"'{name}'")
    subprocess.run(["bash", "-c", line], check=True, capture_output=True, timeout=60)
    assert not {one.id for one in client.images.list(all=True)} & {*numbers}


def test_missing_requirements_file_is_the_callers_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no requirements file"):
        image_build.build("base", requirements=tmp_path / "none.txt", progress=lambda _: None)


def test_newest_platform_comes_first() -> None:
    tags = platform_tags(WheelTarget("aarch64"))
    assert tags[0] == "manylinux_2_41_aarch64"
    assert "manylinux2014_aarch64" in tags
    assert "manylinux1_aarch64" not in tags
