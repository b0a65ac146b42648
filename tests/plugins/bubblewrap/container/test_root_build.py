"""A root without an image, made for real: of one small wheel, this machine's Python and its libraries."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import ConfigurationError, EngineError, ImageMissing
from sandbox_kernel.core.package_files import brought
from sandbox_kernel.plugins.bubblewrap import root_lookup as places_of_roots
from sandbox_kernel.plugins.bubblewrap.discovery import reachable
from sandbox_kernel.plugins.bubblewrap.interface import bubblewrap_program
from sandbox_kernel.plugins.bubblewrap.roots import build as roots
from sandbox_kernel.plugins.bubblewrap.roots import (
    debian_root,
    exported_root,
    root_generations,
    root_layout,
    root_steps,
)
from sandbox_kernel.setup import engine_setup, image_build
from sandbox_kernel.wheels import image_wheels
from sandbox_kernel.wheels.pip_process import WheelTarget
from tests.support.roots import let_others_in

NAME = "sandbox-kernel:base"
HASHES = r"THESE PACKAGES DO NOT MATCH THE HASHES"
LEAKS = ("/home", "/root", "/etc/shadow", "/usr/share/doc", "/usr/lib/python3", "/usr/bin/sudo", "/var", "/sys", "/run")
"""Of the machine, and seen in none."""


def wheel(folder: Path, marker: Path, version: str = "1.0", *, name: str = "small") -> Path:
    """Make a wheel of a module, a script, tests, and what each start of Python runs, which tells if it was here."""
    path, meta = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    here = f"pathlib.Path({str(marker)!r})"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n\ndef main():\n    print({name!r}, VERSION)\n",
        f"{name}.pth": f"import pathlib; {here}.touch() if {here}.parent.exists() else None\n",
        "sub/tests/test_large.py": "",
        f"{meta}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{meta}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{meta}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{meta}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


class Place:
    """Folders of a test in place of the user's own, and an index that is one folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pip = image_wheels.installer(brought("images"), WheelTarget(os.uname().machine))  # fetched with the images
        self.index, self.recipes, self.marker = folder / "index", folder / "images", folder / "ran on the machine"
        self.index.mkdir()
        shutil.copy(pip, self.index)
        self.recipes.mkdir()
        for name in (*roots.FILES, "warm.py", "pip.conf", "installer.lock"):
            shutil.copy(brought("images") / name, self.recipes)
        shutil.copytree(brought("images") / "kernels", self.recipes / "kernels")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setattr(places_of_roots, "folders", lambda: [str(folder / "roots")])
        monkeypatch.setattr(root_generations, "root_folders", lambda: [str(folder / "roots")])
        monkeypatch.setenv("PIP_FIND_LINKS", str(self.index))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setattr(roots, "brought", lambda name: {"images": self.recipes}[name])
        self.lines: list[str] = []
        self.lock(wheel(self.index, self.marker))

    def lock(self, path: Path) -> None:
        name, version = path.name.split("-")[:2]
        text = f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for kind in ("base", "data"):
            lock = image_wheels.lock_of(self.recipes, kind, root_layout.find_python().minor)
            lock.parent.mkdir(exist_ok=True)
            lock.write_text(text)

    def build(self, **options: object) -> Path:
        return root_generations.folder_of(roots.build("base", progress=self.lines.append, **options))  # type: ignore[arg-type]

    def source(self, inside: str) -> Path:
        """Return what lies at a place inside."""
        folder = root_generations.folder_of(NAME)
        return next(folder / source for source, there in root_generations.read(folder)["binds"] if there == inside)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A root that tests look at and do not change."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        place = Place(tmp_path_factory.mktemp("built"), monkeypatch)
        place.build()
        yield place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def inside(name: str, *command: str) -> str:
    """Run a command in bubblewrap with nothing but a root, and return what it prints."""
    bwrap = bubblewrap_program()
    if bwrap is None:
        pytest.skip("there is no bwrap on this machine")
    folder = root_generations.folder_of(name)
    said = json.loads((folder / "root.json").read_text())
    words = [bwrap, "--unshare-all", "--unshare-user", "--new-session", "--die-with-parent", "--clearenv"]
    for entry in sorted((folder / said["tree"]).iterdir()) if "tree" in said else ():
        words += ["--symlink", str(entry.readlink())] if entry.is_symlink() else ["--ro-bind", str(entry)]
        words += [f"/{entry.name}"]
    for source, there in said["binds"]:
        words += ["--ro-bind", str(folder / source), there]  # an absolute source stays what it is
    for source, there in said.get("links", ()):
        words += ["--symlink", source, there]
    for key, value in said["environment"].items():
        words += ["--setenv", key, value]
    words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--", *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- an environment ---------------------------------------------------------------------------------------------------


def test_packages_of_the_lock_are_there_and_no_others(built: Place) -> None:
    assert inside(NAME, "small") == "small 1.0\n"
    program = "import json, sys, small; print(json.dumps([sys.path, sys.prefix, sys.executable, small.__file__]))"
    path, prefix, executable, module = json.loads(inside(NAME, "python3", "-I", "-c", program))
    assert (prefix, executable) == ("/usr/local", "/usr/local/bin/python3")
    assert module.startswith("/usr/local/lib/python3")
    assert not [folder for folder in path if folder.endswith("-packages") and not folder.startswith("/usr/local/")]
    machine_s = "import importlib.metadata as m; print(sorted(d.name for d in m.distributions()))"
    assert inside(NAME, "python3", "-I", "-c", machine_s) == "['small']\n"


def test_nothing_else_of_the_machine_is_seen(built: Place) -> None:
    """The control is the machine: it has some of these."""
    listing = inside(NAME, "sh", "-c", 'for path in "$@"; do test ! -e $path || echo $path; done', "sh", *LEAKS)
    assert listing == ""
    assert [path for path in LEAKS if Path(path).exists()]
    assert inside(NAME, "sh", "-c", "ls -A / /usr").split() == [
        *("/:", "bin", "dev", "lib", "lib64", "opt", "proc", "usr"),
        *("/usr:", "bin", "lib", "lib64", "local", "share"),
    ]


def test_no_file_of_a_root_has_the_rights_of_another_user(built: Place) -> None:
    found = inside(NAME, "find", "/", "-xdev", "-perm", "/6000", "-type", "f")
    own = [path for path in found.split() if not path.startswith("/usr/lib/")]
    assert own == []


def test_no_code_of_a_package_runs_on_the_machine(place: Place) -> None:
    """The control is one start of that Python here."""
    place.build()
    assert not place.marker.exists()
    packages = next((place.source("/usr/local") / "lib").glob("python*/site-packages"))
    subprocess.run(["python3", "-I", "-c", f"import site; site.addsitedir({str(packages)!r})"], check=True, cwd="/")
    assert place.marker.exists()


@pytest.mark.long
def test_bytecode_is_there_and_names_the_files_where_they_lie_inside(built: Place) -> None:
    """A sandbox cannot write it, and would compile each package in each session."""
    program = "import small; print(small.__cached__, small.main.__code__.co_filename)"
    cached, name = inside(NAME, "python3", "-I", "-c", program).split()
    compiled = built.source("/usr/local") / Path(cached).relative_to("/usr/local")
    assert name.encode() in compiled.read_bytes()
    assert str(built.marker.parent).encode() not in compiled.read_bytes()
    assert not list(compiled.parent.parent.rglob("tests"))


def test_no_path_of_this_machine_is_told_by_a_script_or_the_configuration(built: Place) -> None:
    environment = built.source("/usr/local")
    texts = [path.read_text() for path in (environment / "pyvenv.cfg", environment / "bin" / "small")]
    assert not [text for text in texts if str(built.marker.parent) in text]
    assert texts[1].startswith("#!/usr/local/bin/python3\n")


@pytest.mark.long
def test_a_second_build_has_nothing_to_do_and_asks_no_index(place: Place) -> None:
    folder = place.build()
    before = (folder / "root.json").read_bytes()
    shutil.rmtree(place.index)
    place.build()
    assert place.lines[-1].endswith("is up to date")
    assert (folder / "root.json").read_bytes() == before
    place.build(force=True)
    assert (folder / "root.json").read_bytes() != before
    assert inside(NAME, "small") == "small 1.0\n"


@pytest.mark.long
def test_another_lock_makes_another_root_and_the_state_says_so(place: Place) -> None:
    assert roots.state(NAME)[0] == "wrong"
    place.build()
    assert roots.state(NAME)[0] == "ok"
    place.lock(wheel(place.index, place.marker, "2.0"))
    assert roots.state(NAME)[0] == "note"
    place.build()
    assert roots.state(NAME)[0] == "ok"
    assert inside(NAME, "small") == "small 2.0\n"


def test_a_wheel_that_is_not_the_locked_one_is_refused_and_the_root_stays(place: Place) -> None:
    """Both when it is fetched, and when it was changed in the cache."""
    place.build()
    wheel(place.index, place.marker, "2.0")
    place.lock(place.index / "small-2.0-py3-none-any.whl")
    with zipfile.ZipFile(place.index / "small-2.0-py3-none-any.whl", "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(EngineError, match=HASHES):
        place.build()
    wheel(place.index, place.marker, "2.0")
    place.lock(place.index / "small-2.0-py3-none-any.whl")
    cached = next(path for path in image_wheels.cache().rglob("small-1.0*.whl"))
    place.lock(place.index / "small-1.0-py3-none-any.whl")
    with zipfile.ZipFile(cached, "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(EngineError, match=HASHES):
        place.build(force=True)
    assert inside(NAME, "small") == "small 1.0\n"


@pytest.mark.long
def test_requirements_add_packages_to_those_of_the_kind(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"{wheel(tmp_path, place.marker, name='more').name}\n")
    place.build(requirements=file, tag="mine/more")
    assert [inside("mine/more", name) for name in ("small", "more")] == ["small 1.0\n", "more 1.0\n"]
    file.write_text(f"{wheel(tmp_path, place.marker, '3.0').name}\n")
    with pytest.raises(ConfigurationError, match=r"small.*1\.0"):  # what the kernel needs keeps its version
        place.build(requirements=file, tag="mine/more")
    assert not place.marker.exists()


@pytest.mark.long
def test_caches_are_made_within_a_sandbox_with_the_packages_read_only(place: Place, tmp_path: Path) -> None:
    """Root lets somebody else do it, who can neither write to the packages nor read what is root's."""
    (place.recipes / "warm.py").write_text(
        "import pathlib\n"
        "home = pathlib.Path('/opt/sandbox/home/found')\n"
        "try:\n    pathlib.Path('/usr/local/written').touch()\n    home.write_text('writable')\n"
        "except OSError as error:\n    home.write_text(error.strerror)\n"
    )
    if os.geteuid() == 0:
        let_others_in(tmp_path)
    program = bubblewrap_program()
    if program is None or (os.geteuid() == 0 and not reachable(program)):
        pytest.skip("there is no bwrap on this machine that everybody may start")
    place.build()
    found = place.source("/opt/sandbox/home") / "found"
    assert found.exists(), place.lines
    assert found.read_text() == "Read-only file system"
    assert found.stat().st_uid == os.geteuid()


# --- an image's files -------------------------------------------------------------------------------------------------


@pytest.fixture
def image() -> Iterator[str]:
    """An image of a few files."""
    name = f"sandbox-kernel-tests/files:{os.getpid()}"
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path, mode, body in (("usr/bin/tool", 0o4755, b"tool"), ("etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\n")):
            info = tarfile.TarInfo(path)
            info.mode, info.size = mode, len(body)
            archive.addfile(info, io.BytesIO(body))
    file.seek(0)
    with closing(engine_setup.connect(engine_setup.require_engine().host, seconds=60)) as client:
        repository, _, tag = name.partition(":")
        client.api.import_image(file, repository=repository, tag=tag, changes=["ENV PATH=/usr/bin", "ENV SECRET=1"])
        try:
            yield name
        finally:
            client.images.remove(name)


def test_a_root_has_the_files_of_an_image(image: str, place: Place) -> None:
    name = exported_root.build(image, progress=place.lines.append)
    folder, said = root_generations.folder_of(name), root_generations.read(root_generations.folder_of(name))
    tree = folder / said["tree"]
    assert (tree / "usr/bin/tool").read_text() == "tool"
    assert (tree / "usr/bin/tool").stat().st_mode & 0o7777 == 0o755
    assert all((tree / "etc" / name).is_file() for name in exported_root.ETC)
    assert said["environment"] == {"PATH": "/usr/bin"}
    assert said["contents"].startswith("sha256:")
    exported_root.build(image, progress=place.lines.append)
    assert place.lines[-1].endswith("is up to date")
    assert roots.state(name)[0] == "ok"


def test_an_image_that_is_not_there_is_said(place: Place) -> None:
    with pytest.raises(ImageMissing, match="sandbox-kernel-tests/none"):
        exported_root.build("sandbox-kernel-tests/none", progress=place.lines.append)


# --- of Debian's packages ---------------------------------------------------------------------------------------------


RECIPE = """
import json, os, pathlib, sys
said = {
    "steps": sys.argv[1:],
    "ids": pathlib.Path("/proc/self/uid_map").read_text().split()[:2],
    "network": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
    "machine": [path for path in PATHS if os.path.exists(path)],
    "variables": sorted(os.environ),
    "wheels": sorted(os.listdir("/opt/sandbox/build/wheels")),
}
pathlib.Path("/usr/share/said.json").write_text(json.dumps(said))
pathlib.Path("/tmp/left").touch()
"""
"""Stands for the image's recipe, and says what it sees of the place where it runs."""


@pytest.fixture
def debian(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """What a root of Debian's packages is made of: the files of our image here, one wheel, and that recipe."""
    program = bubblewrap_program()
    if program is None or (os.geteuid() == 0 and not reachable(program)):
        pytest.skip("there is no bwrap on this machine that everybody may start")
    recipes = Path(shutil.copytree(brought("images"), tmp_path / "recipes"))
    (recipes / "recipe.py").write_text(RECIPE.replace("PATHS", repr([str(tmp_path), "/root/.cache", "/etc/shadow"])))
    archive = tmp_path / "debian.tar"
    made = subprocess.run(["docker", "create", "sandbox-kernel:base"], check=True, capture_output=True, text=True)
    try:
        subprocess.run(["docker", "export", "-o", archive, made.stdout.strip()], check=True)
    finally:
        subprocess.run(["docker", "rm", made.stdout.strip()], check=True, capture_output=True)
    wheels = image_wheels.Wheels(tuple(sorted(place.index.glob("*.whl"))), "")
    monkeypatch.setattr(image_build, "brought", lambda _: recipes)
    monkeypatch.setattr(debian_root, "bootstrapped", lambda *_: nullcontext(archive))
    monkeypatch.setattr(debian_root, "_wheels", lambda *_, **__: wheels)
    let_others_in(tmp_path)
    yield place
    archive.unlink()


@pytest.mark.long
def test_a_root_of_debian_is_made_by_the_recipe_in_a_sandbox(debian: Place) -> None:
    name = roots.build("r", progress=debian.lines.append)
    folder = root_generations.folder_of(name)
    tree = folder / root_generations.read(folder)["tree"]
    said = json.loads((tree / "usr/share/said.json").read_text())
    user = os.geteuid() or root_steps.NOBODY
    assert (said["steps"], said["ids"], said["network"]) == (["system", "packages"], ["0", str(user)], ["lo"])
    assert said["machine"] == []
    assert set(said["variables"]) <= {"HOME", "LANG", "PATH", "PWD", "LC_CTYPE"}
    assert said["wheels"] == sorted(path.name for path in debian.index.glob("*.whl"))
    assert all((tree / "etc" / file).is_file() for file in exported_root.ETC)
    assert not any((tree / name).exists() for name in ("dev", "proc", "tmp"))
    assert {path.lstat().st_uid for path in tree.rglob("*")} == {os.geteuid()}
    assert inside(name, "python3", "-c", "import ipykernel; print(ipykernel.__name__)") == "ipykernel\n"
    assert roots.state(name).found.endswith("current")
    roots.build("r", progress=debian.lines.append)
    assert debian.lines[-1].endswith("is up to date")


@pytest.mark.long
def test_a_recipe_that_fails_leaves_no_root(debian: Place, tmp_path: Path) -> None:
    (tmp_path / "recipes" / "recipe.py").write_text("raise SystemExit('no room')")
    with pytest.raises(EngineError, match="no room"):
        roots.build("r", progress=debian.lines.append)
    with pytest.raises(ImageMissing):
        places_of_roots.find("sandbox-kernel:r")
