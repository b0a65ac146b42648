"""What is done inside an image while it is built: offline, as root, with the standard library alone.

`recipe.py system` strips a Debian root file system down to what a cell may need; `recipe.py packages` installs the
wheels that lie beside this file and prepares everything that a read-only root cannot prepare at start. Both print one
line for each thing they do. Running either twice does no harm.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = Path("/opt/sandbox/home")
"""Copied into the kernel's home at start: caches that would be rebuilt in each session otherwise."""

ACCOUNTS = "/tmp/.sandbox"  # noqa: S108 -- the sandbox's own
"""Where the agent writes who the user of its sandbox is. Each has a user id of its own, which no file here can name."""

FILES = ("plots.py", "measures.py", "unpack.js", "plotly_failures.js", "plotly_without_outlines.js")
"""What fits libraries into the sandbox; each kernel's start calls the first, and a figure brings the scripts along."""

KERNELS = {
    "bash": ("bash_kernel.py", "kernel_base.py"),
    "deno": (),
    "sql": ("sql_kernel.py", "kernel_base.py"),
}
"""Kernels of other languages, and our files in the folder of each."""

MOUNT_POINTS = ("/mnt/data", "/tmp", "/proc", "/sys", "/dev")  # noqa: S108 -- not ours

UNNEEDED_PACKAGES = ("apt", "debconf", "dpkg", "gpgv", "libapt-pkg", "liberror-perl", "libperl", "perl", "sqv")
"""Debian packages whose files go: the package managers, and perl, which they use, and rare commands of git. Matched by
prefix."""

UNNEEDED_WITH_R = tuple(
    """
    fonts-font-awesome fonts-glyphicons fonts-mathjax javascript-common libjs- littler node- pandoc r-cran-bslib
    r-cran-fontawesome r-cran-gargle r-cran-googledrive r-cran-googlesheets4 r-cran-httpuv r-cran-jquerylib
    r-cran-littler r-cran-pkgkitten r-cran-rmarkdown r-cran-sass r-cran-shiny r-cran-tinytex xdg-utils
    """.split()  # noqa: SIM905 (one line a package says no more)
)
"""What R's packages bring for web pages, servers and Google's services: half of their size, and no cell can use it."""

UNNEEDED_COMMANDS = tuple(
    """
    nsenter unshare chroot pivot_root switch_root setpriv runuser su sulogin newgrp mount umount swapon swapoff mkswap
    swaplabel losetup fsck fsfreeze fstrim mkfs wipefs blkdiscard blkid blkzone blockdev findfs findmnt isosize
    zramctl lsblk lslocks lsns lsipc lslogins lsmem namei dmesg wdctl chmem chcpu rtcwake readprofile ldattach
    agetty getty killall5 ctrlaltdel hwclock faillock mkhomedir_helper pam-auth-update pam_getenv pam_namespace_helper
    pam_timestamp_check pwhistory_helper unix_update ischroot invoke-rc.d service update-rc.d installkernel
    add-shell remove-shell update-shells update-passwd chrt choom uclampset prlimit ipcmk ipcrm ipcs setarch i386
    linux32 linux64 x86_64 mcookie wall script scriptlive scriptreplay mknod chcon runcon tarcat rmt rmt-tar
    deb-systemd-helper deb-systemd-invoke fstab-decode capsh getpcaps setcap getcap ip ss bridge tc rtmon
    """.split()  # noqa: SIM905 (one line a command says no more)
)
"""Commands of Debian that handle namespaces, mounts, devices, other users or the machine: none works in a sandbox, and
what they would tell is the machine's. A cell may bring its own; the system call filter is the wall."""

UNNEEDED_OF_GIT = tuple(
    "daemon http-backend http-fetch http-push imap-send instaweb shell".split()  # noqa: SIM905 (one line says no more)
)
"""Servers, and transports that nobody uses any more, of 2.3 MB each."""

UNNEEDED_PATHS = (
    *(f"/usr/lib/git-core/git-{name}" for name in UNNEEDED_OF_GIT),
    *("/usr/bin/git-shell", "/usr/bin/scalar", "/usr/lib/git-core/scalar"),
    "/etc/apt",
    "/etc/cron.daily",
    "/etc/dpkg",
    "/etc/machine-id",
    "/usr/share/bug",
    "/usr/share/info",
    "/usr/share/lintian",
    "/usr/share/locale",
    "/usr/share/man",
    "/var/cache",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/log",
)


def main(*steps: str) -> None:
    """Do one of the two steps, or both, and take this folder away."""
    for step in steps:
        {"system": strip_system, "packages": install_packages}[step]()
    shutil.rmtree(HERE)


def strip_system() -> None:
    """Remove what no cell needs, and above all what could help it to more rights."""
    say("removing the package manager, documentation and caches")
    listings = Path("/var/lib/dpkg/info")
    unneeded = (*UNNEEDED_PACKAGES, *(UNNEEDED_WITH_R if (listings / "r-base-core.list").exists() else ()))
    for listing in listings.glob("*.list"):
        if listing.name.startswith(unneeded):
            paths = [Path(line) for line in listing.read_text().splitlines()]
            for path in paths:
                remove(path, folders=False)
            if listing.name.startswith("r-cran-"):  # R takes a folder for a package
                for path in reversed(paths):
                    with contextlib.suppress(OSError):  # others are in it
                        path.rmdir()
    for name in ("pip", "ensurepip", "idlelib", "pydoc_data", "turtledemo"):
        for parent in {sysconfig.get_path("stdlib"), *library_folders()}:
            for path in (Path(parent, name), *Path(parent).glob(f"{name}-*.dist-info")):
                remove(path)
    for path in Path("/usr/local/bin").glob("pip*"):
        remove(path)
    for name in UNNEEDED_COMMANDS:
        for folder in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
            remove(Path(folder, name), folders=False)
    for name in UNNEEDED_PATHS:
        remove(Path(name))
    for path in Path("/usr/share/doc").rglob("*"):
        if path.name != "copyright":  # licences ask for their text to stay
            remove(path, folders=False)
    remove_privileged_files()
    remove(Path("/usr/lib/git-core/git"))  # the same program once more
    Path("/usr/lib/git-core/git").symlink_to("../../bin/git")
    for name in MOUNT_POINTS:
        Path(name).mkdir(parents=True, exist_ok=True)
    browser, name = Path("/usr/bin/chromium-headless-shell"), Path("/usr/local/bin/chromium")
    if browser.exists() and not name.exists():
        name.symlink_to(browser)  # by this name plotly's program for pictures looks for it
    python = Path("/usr/local/bin/python")
    if not python.exists():
        python.symlink_to(shutil.which("python3") or sys.executable)
    for name in MOUNT_POINTS[:2]:  # an engine may give a tmpfs the mode of the folder that it covers
        Path(name).chmod(0o1777)
    for name in ("passwd", "group"):
        remove(Path("/etc", name))
        Path("/etc", name).symlink_to(f"{ACCOUNTS}/{name}")
    home = Path("/home/user")  # where cells run in hosted interpreters, and code is moved over
    home.parent.mkdir(exist_ok=True)
    if not home.is_symlink():
        home.symlink_to("/mnt/data")
    compile_bytecode(Path(sysconfig.get_path("stdlib")))


def install_packages() -> None:
    """Install the wheels, then compile and warm up what is slow to do at each start."""
    wheels, lock = HERE / "wheels", HERE / "requirements.txt"
    pip = next(wheels.glob("pip-*.whl"))
    say(f"installing from {len(list(wheels.glob('*.whl')))} wheels")
    options = [
        "--no-index",
        f"--find-links={wheels}",
        "--no-deps",
        "--no-compile",
        "--no-cache-dir",
        "--break-system-packages",
    ]
    quiet = ["--quiet", "--root-user-action=ignore", "--disable-pip-version-check", "--no-warn-script-location"]
    subprocess.run(  # a wheel is a zip file, and Python runs a package in one
        [sys.executable, f"{pip}/pip", "install", *options, *quiet, "-r", lock], check=True, cwd=HERE
    )
    remove_privileged_files()
    for folder in library_folders():
        for tests in [path for path in folder.rglob("tests") if path.is_dir()]:
            init = tests.with_name("__init__.py")
            if not (init.is_file() and "from .tests " in init.read_text(errors="replace")):  # PyTables needs its own
                remove(tests)
        compile_bytecode(folder)
    bring_fonts(Path(sysconfig.get_path("purelib")))
    shutil.copyfile(HERE / "pip.conf", "/etc/pip.conf")
    bring_kernelspecs()
    bring_logos()
    warm_up()


def bring_fonts(packages: Path) -> None:
    """Link the fonts of packages to where programs, Pillow and ReportLab look for fonts.

    `plots.py` has matplotlib fall back on those that it does not have itself.
    """
    folder = Path("/usr/share/fonts/truetype")
    folder.mkdir(parents=True, exist_ok=True)
    fonts = ("fontpkg_*/files/*.ttf", "noto_cjk_*/*.ttc", "matplotlib/mpl-data/fonts/ttf/DejaVu*.ttf")
    for font in (font for pattern in fonts for font in packages.glob(pattern)):
        remove(folder / font.name)
        (folder / font.name).symlink_to(os.path.relpath(font, folder))


def bring_kernelspecs() -> None:
    """Say how kernels of other languages are started, and bring those that are ours; R's package brings its own."""
    needed = {"bash": Path("/bin/bash"), "deno": Path("/usr/local/bin/deno")}
    needed["sql"] = Path(sysconfig.get_path("purelib"), "duckdb")
    for name, files in KERNELS.items():
        if needed[name].exists():
            folder = Path("/usr/local/share/jupyter/kernels", name)
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / "kernels" / f"{name}.json", folder / "kernel.json")
            for file in files:
                shutil.copyfile(HERE / "kernels" / file, folder / file)
            compileall.compile_dir(folder, quiet=2)


def bring_logos() -> None:
    """Have Deno write its logos, which front ends show."""
    deno = Path("/usr/local/bin/deno")
    if deno.exists():
        with tempfile.TemporaryDirectory() as home:
            subprocess.run(
                [deno, "jupyter", "--install"],
                check=True,
                env={"HOME": home},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for logo in Path(home).rglob("logo-*"):
                shutil.copyfile(logo, Path("/usr/local/share/jupyter/kernels/deno", logo.name))


def compile_bytecode(folder: Path) -> None:
    """Write the bytecode of `folder` where it is missing; a kernel cannot keep it on a read-only root."""
    say(f"compiling {folder}")
    compileall.compile_dir(
        folder,
        quiet=2,  # a few packages ship files for other Python versions, which do not compile
        workers=0,
        maxlevels=100,
    )


def warm_up() -> None:
    """Prepare the caches of a home folder; each is skipped where its package is missing."""
    say("preparing caches")
    startup = HOME / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        module = Path(sysconfig.get_path("purelib"), f"sandbox_{name}")
        shutil.copyfile(HERE / name, module)
        compileall.compile_file(module, quiet=2)  # does nothing with a script
    # Where pip puts what a cell installs; Python looks there only if it is there when a kernel starts.
    Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(HOME / ".local")})).mkdir(
        parents=True, exist_ok=True
    )
    (startup / "00-plots.py").write_text('__import__("sandbox_plots").prepare()\n')
    subprocess.run([sys.executable, "-I", HERE / "warm.py"], check=True, env={**os.environ, "HOME": str(HOME)})
    for path in HOME.rglob("*"):  # another user copies these
        path.chmod(0o755 if path.is_dir() else 0o644)


def remove_privileged_files() -> None:
    """Delete each setuid or setgid file, and take the bits from folders: nothing may run with another user's rights."""
    for path in walk(Path("/")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            remove(path)
        elif stat.S_ISDIR(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def walk(root: Path) -> Iterator[Path]:
    """Yield everything beneath `root`, and nothing of the kernel's own file systems."""
    for folder, names, files in os.walk(root):
        if folder == "/":
            names[:] = [name for name in names if name not in {"proc", "sys", "dev"}]
        yield from (Path(folder, name) for name in (*names, *files))


def library_folders() -> list[Path]:
    """Return where packages are installed: site-packages, or Debian's dist-packages."""
    return [Path(path) for path in sys.path if path.endswith(("/site-packages", "/dist-packages"))]


def remove(path: Path, *, folders: bool = True) -> None:
    """Delete a file or a link, or a folder with all in it if `folders` is set; no error if it is gone already."""
    if path.is_dir() and not path.is_symlink():
        if folders:
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 -- the builder reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
