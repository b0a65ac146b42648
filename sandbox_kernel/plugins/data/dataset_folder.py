"""A dataset's folder, opened with a user's own rights: by this process, or by a helper that becomes that user first.

So a folder that its user may not read is refused to a sandbox, too, whoever makes the sandbox; and one that is changed
for a link in between leads nowhere that the user could not go. This file is the helper's program as well, and what it
imports at once is in every Python: that starts within milliseconds, and needs no file that the user may not read.
"""

from __future__ import annotations

import os
import sys

FORBIDDEN = ("/", "/dev", "/proc", "/sys", "/run")
"""No dataset, and nothing below the middle three: they are the machine, and no data."""
HELPER_SECONDS = 10.0
"""For one folder. A file system of a server that does not answer, or of a user's own, holds nobody up for longer."""
TEXT_BYTES = 4096
_OPENED = b"+"


class UnfitFolderError(Exception):
    """Says why a folder is none for a dataset."""


def opened(path: str, reader: int | None = None) -> int:
    """Return a descriptor of a folder, for its path alone (O_PATH), opened with the rights of `reader`.

    That is an account of the machine; None is this process's own user. Root asks for no more than this process may.
    Raises `UnfitFolderError`.
    """
    import pwd

    uid = os.geteuid() if reader in {None, 0} else int(reader or 0)
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        account = None
    home = "/" if account is None else account.pw_dir
    if uid == os.geteuid():
        fd = _open(path, home)
    elif os.geteuid() != 0:
        raise UnfitFolderError("only a broker that root runs opens it with the rights of the user who asks")
    elif account is None:
        raise UnfitFolderError(f"user id {uid} is no account, so it has no groups")
    else:
        fd = opened_as(uid, account.pw_gid, os.getgrouplist(account.pw_name, account.pw_gid), path, home)
    real = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 (pathlib is slow to import)
    if real in FORBIDDEN or real.startswith(("/dev/", "/proc/", "/sys/")):
        os.close(fd)
        raise UnfitFolderError(f"{real} is no folder of data")
    return fd


def opened_as(uid: int, gid: int, groups: list[int], path: str, home: str = "/") -> int:
    """Return a folder that a helper opened with these rights and no others; `home` is the user's.

    Raises `UnfitFolderError`.
    """
    import contextlib
    import select
    import subprocess

    words = [str(uid), str(gid), ",".join(map(str, groups)), path, home]
    helper = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, *words],
        stdin=subprocess.PIPE,  # it ends with this process
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    )
    assert helper.stdout is not None  # noqa: S101 (for the reader of types)
    assert helper.stdin is not None  # noqa: S101 (as above)
    try:
        ready, _, _ = select.select([helper.stdout], [], [], HELPER_SECONDS)
        said = os.read(helper.stdout.fileno(), TEXT_BYTES) if ready else b"it was not opened in time"
        if said[:1] == _OPENED:
            # It holds the folder and waits. Nobody but root can change what its numbers stand for.
            return os.open(f"/proc/{helper.pid}/fd/{int(said[1:])}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        raise UnfitFolderError(said.decode("utf-8", "replace") or f"{path}: the helper that opens it ended")
    except OSError as error:
        raise UnfitFolderError(f"{path}: the helper that opens it ended") from error
    finally:
        helper.kill()
        helper.stdin.close()
        helper.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a file system holds it: later starts ask again
            helper.wait(1)


def _open(path: str, home: str) -> int:
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise UnfitFolderError(f"{path}: {getattr(error, 'strerror', error)}") from error
    try:
        if not os.access(f"/proc/self/fd/{fd}", os.R_OK | os.X_OK, effective_ids=True):
            raise UnfitFolderError(f"this user may not read {path}")
        _refuse_home(path, os.fstat(fd), home)
    except OSError as error:
        os.close(fd)
        raise UnfitFolderError(f"{path}: {error.strerror}") from error
    except UnfitFolderError:
        os.close(fd)
        raise
    return fd


def _refuse_home(path: str, folder: os.stat_result, home: str) -> None:
    """Refuse a home and what is above it, by whatever name: of a link, or where it is mounted once more.

    What cannot be looked at may be the folder if the way there ends on its device. Raises `UnfitFolderError`.
    """
    device = None
    for one in _way_to(home):
        try:
            found = os.stat(one)  # noqa: PTH116 (pathlib is slow to import)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if device == folder.st_dev:
                raise UnfitFolderError(f"whether {path} is the home {home} is not known: {error.strerror}") from error
            continue
        if os.path.samestat(found, folder):
            raise UnfitFolderError(f"{path} is no folder of data: it is the home {home}, or above it")
        device = found.st_dev


def _way_to(home: str) -> list[str]:
    """Return the folders from / to a home, without links; those above it as well if it is itself a link."""
    found: dict[str, None] = {"/": None}
    if home.startswith("/"):
        for end in (os.path.dirname(home.rstrip("/")), home):  # noqa: PTH120 (pathlib is slow to import)
            names = os.path.realpath(end).split("/")
            found.update(dict.fromkeys("/".join(names[:many]) for many in range(2, len(names) + 1) if names[many - 1]))
    return list(found)


def _become(uid: int, gid: int, groups: list[int]) -> None:
    """Have a user's rights and no others, for good. Raises OSError."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123 (as above)
        rights = [int(line.split()[1], 16) for line in status if line.startswith((b"CapPrm:", b"CapEff:"))]
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid) or rights != [0, 0]:
        raise PermissionError(1, "the rights of root were not given up")


def main(words: list[str]) -> None:
    """Hold a folder until stdin ends, and say its number; or say why there is none."""
    uid, gid, groups, path, home = words
    try:
        _become(int(uid), int(gid), [int(one) for one in groups.split(",") if one])
        os.write(1, _OPENED + str(_open(path, home)).encode())
        os.read(0, 1)
    except OSError as error:
        os.write(1, f"{path}: {error.strerror}".encode("utf-8", "replace"))
    except UnfitFolderError as error:
        os.write(1, str(error).encode("utf-8", "replace"))


if __name__ == "__main__":
    main(sys.argv[1:])
