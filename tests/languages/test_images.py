"""What is in the images and roots of other languages, and what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox
from tests.languages.places import R, asked_for, engine_is_here

pytestmark = [asked_for, pytest.mark.timeout(180)]


PLACES = ["r-docker", "r-bubblewrap", "deno-docker", "all-docker", "all-bubblewrap"]
"""Without Deno's root: that shows libraries of this machine, and all that lies beside them."""


@pytest.fixture(scope="module", params=PLACES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    kind, _, engine = request.param.partition("-")
    engine_is_here(engine)
    with Sandbox(image=f"sandbox-kernel:{kind}", engine=engine) as one:
        yield one


def test_no_file_runs_with_rights_of_another_user(sandbox: Sandbox) -> None:
    found = sandbox.run_code("""
        import json, os
        found, seen = [], 0
        for folder, names, files in os.walk("/"):
            names[:] = [name for name in names if os.path.join(folder, name) not in ("/proc", "/sys", "/dev", "/tmp")]
            for path in (os.path.join(folder, name) for name in names + files):
                seen += 1
                attributes = [] if os.path.islink(path) else os.listxattr(path)
                if os.lstat(path).st_mode & 0o6000 or "security.capability" in attributes:
                    found.append(path)
        print(json.dumps([found, seen > 3000]))
        """)
    assert found.error is None, found.error.traceback
    assert json.loads("".join(found.logs.stdout)) == [[], True]


def test_no_package_manager_no_compiler_and_no_command_for_mounts(sandbox: Sandbox) -> None:
    """And what people use in cells is there. Only `all`, which has the packages of data, has pip."""
    found = sandbox.run_code(
        """
        import json, os, shutil
        os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        tools = ["apt", "apt-get", "dpkg", "perl", "gcc", "g++", "cc", "ld", "make", "wget", "pandoc"]
        tools += ["pip", "pip3"] if not WITH_PIP else []
        tools += ["su", "sudo", "mount", "umount", "passwd", "nsenter", "unshare", "chroot", "capsh"]
        used = ["bash", "curl", "git", "jq", "unzip", "zip"]
        print(json.dumps([[tool for tool in tools if shutil.which(tool)],
                          [tool for tool in used if not shutil.which(tool)]]))
        """.replace("WITH_PIP", str(sandbox.settings.image.endswith(":all")))
    )
    assert json.loads("".join(found.logs.stdout)) == [[], []]


def test_every_package_of_r_loads() -> None:
    """The recipe removes what some of them bring for the web."""
    code = """
        names <- rownames(installed.packages())
        loads <- sapply(names, function(name) suppressWarnings(suppressPackageStartupMessages(
            requireNamespace(name, quietly = TRUE))))
        cat(length(names) > 100, names[!loads])
        """
    with Sandbox(image=R.image, kernel=R.kernel) as one:
        found = one.run_code(code)
    assert (found.error, "".join(found.logs.stdout).strip()) == (None, "TRUE")
