"""The home folder of a user, by the machine's table of users: no variable has a say."""

from __future__ import annotations

import os
import pwd


def home_folder(user: str = "") -> str | None:
    """Return the home of a user by name, of this process's if none is given; None without one.

    `/` is nobody's: some users that programs run as have it in the table. $HOME may be chosen by whoever starts a
    kernel.
    """
    try:
        home = (pwd.getpwnam(user) if user else pwd.getpwuid(os.geteuid())).pw_dir
    except (KeyError, ValueError):  # the second for what no user can be called: half a character, a NUL
        return None
    return home if home.startswith("/") and home != "/" else None
