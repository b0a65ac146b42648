"""The kinds of images and roots: Debian's packages, then wheels of locks, in stages of which each has a name.

    DEBIAN_PACKAGES             ->  base  ->  data
                                    base  ->  deno
    those and R_PACKAGES        ->  r     ->  all
    those and FULL_PACKAGES     ->  full

What Debian's packages bring cannot be added later: the first stage removes the package manager. So R and `full` have
root file systems of their own, and what a shell needs is in all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..core.codes import EndCode
from ..core.errors import EngineError
from ..engines.image_names import Kind
from . import engine_setup
from .command_steps import Steps, run, tail

DEBIAN_SUITE = "trixie"
DEBIAN_PACKAGES = (
    *("libfaketime", "libnss-myhostname", "libstdc++6", "netbase", "python3", "tzdata", "tzdata-legacy"),
    *("curl", "git", "jq", "unzip", "zip"),
)
"""Python, and what programs that run commands in a sandbox take for granted: 27 MB. Python 3.13 is trixie's own.

libfaketime shifts the clock of a run that asks for another date, and is loaded by no other: two files of 64 KB.
libnss-myhostname knows localhost without /etc/hosts, which an engine leaves empty where no network is. tzdata-legacy
has the zones by their older names, such as US/Pacific; without it their clocks show UTC and say nothing.
"""
R_PACKAGES = (
    *("r-base-core", "r-cran-irkernel", "libopenblas0-pthread", "fonts-dejavu-core"),
    *("r-cran-cairo", "r-cran-data.table", "r-cran-svglite", "r-cran-tidyverse"),
)
"""R with its kernel. Plots need a font, and matrices a fast BLAS. The recipe removes what these bring for the web."""

FULL_PACKAGES = (
    *("fonts-dejavu-core", "fonts-liberation", "ghostscript", "pandoc", "poppler-utils", "python3-odf"),
    *("libreoffice-calc-nogui", "libreoffice-impress-nogui", "libreoffice-writer-nogui"),
    *("tesseract-ocr", "tesseract-ocr-deu", "tesseract-ocr-fra", "tesseract-ocr-spa"),
    *("ffmpeg", "graphviz", "imagemagick", "libmagic1t64", "librsvg2-bin", "chromium-headless-shell"),
    *("7zip", "bzip2", "file", "less", "rsync", "sqlite3", "tree", "wget", "xz-utils", "zstd"),
    *("g++", "gcc", "libc6-dev", "make", "nodejs", "python3-dev"),
)
"""Programs that open what people upload, and those that agents expect of a shell."""

KERNELS: dict[str, tuple[str, ...]] = {
    "bash": ("bash_kernel.py", "kernel_base.py"),
    "deno": (),
    "sql": ("sql_kernel.py", "kernel_base.py"),
}
"""Kernels of other languages, and our files in the folder of each. `images/recipe.py` has the same table."""
KERNEL_FILES = tuple(sorted({f"{name}.json" for name in KERNELS}.union(*KERNELS.values())))
"""Of images/kernels/."""

Stage = tuple[Kind, tuple[str, ...]]
"""A kind, and the locks of what it adds to the one before."""
BOOTSTRAP_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class KindStages:
    """What a kind is made of."""

    debian: tuple[str, ...]
    """Debian's packages of its root file system."""
    stages: tuple[Stage, ...]
    """The kinds on the way to it, and itself."""

    @property
    def has_own_root(self) -> bool:
        """Whether it needs more of Debian than what all have."""
        return self.debian != DEBIAN_PACKAGES

    @property
    def locks(self) -> tuple[str, ...]:
        """All locks; the later ones keep the versions of the earlier ones."""
        return tuple(lock for _, locks in self.stages for lock in locks)


_BASE: Stage = ("base", ("base",))
_R: Stage = ("r", ("base",))
_WITH_R = (*DEBIAN_PACKAGES, *R_PACKAGES)
_OF_FULL = (*DEBIAN_PACKAGES, *FULL_PACKAGES)
KINDS: dict[Kind, KindStages] = {
    "base": KindStages(DEBIAN_PACKAGES, (_BASE,)),
    "data": KindStages(DEBIAN_PACKAGES, (_BASE, ("data", ("data",)))),
    "full": KindStages(_OF_FULL, (("full", ("base", "data", "full")),)),
    "r": KindStages(_WITH_R, (_R,)),
    "deno": KindStages(DEBIAN_PACKAGES, (_BASE, ("deno", ("deno",)))),
    "all": KindStages(_WITH_R, (_R, ("all", ("data", "deno")))),
}


@contextmanager
def bootstrapped(packages: Sequence[str], steps: Steps) -> Iterator[Path]:
    """Make a root file system of Debian's signed packages, as a tar archive that is there until the block ends.

    Raises `EngineError`.
    """
    command = [engine_setup.ensure_mmdebstrap(steps.say), "--quiet", "--variant=essential"]
    command += [f"--include={','.join(packages)}", "--dpkgopt=path-exclude=/usr/share/man/*"]
    command += ['--aptopt=Apt::Install-Recommends "false"']
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as folder:
        archive = Path(folder, "root.tar")
        wanted = f"{len(packages)} packages and what they need"  # R's are hundreds then, which takes ten minutes
        with steps.during(f"bootstrapping Debian {DEBIAN_SUITE} with mmdebstrap: {wanted}"):
            result = run([*command, DEBIAN_SUITE, str(archive)], seconds=BOOTSTRAP_SECONDS)
        if result.returncode != 0:
            raise EngineError(
                EndCode.IMAGE_NOT_BUILT,
                f"mmdebstrap cannot make a root file system: {tail(result.stdout)}. It needs root, or user "
                "namespaces and newuidmap (package uidmap)",
            )
        yield archive
