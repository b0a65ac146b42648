"""Folders in the home of the user in which this plugin keeps runs: nobody else's, and of bounded size."""

from __future__ import annotations

from pathlib import Path

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.home_folder import home_folder
from ...files.host_paths import Folder, open_folder, usable


def below_home(*names: str) -> Path:
    """Return a path below the home folder. Raises `ConfigurationError` for a user without one."""
    home = home_folder()
    if home is None:
        raise ConfigurationError(UsageCode.PLACE_UNFIT, "this user has no home folder, in which runs are kept")
    return Path(home, *names)


def private(path: Path) -> Folder:
    """Open a folder that this user alone may enter, made if it is not there. Raises `ConfigurationError`."""
    with usable(UsageCode.PLACE_UNFIT, f"{path} cannot be used"):
        folder = open_folder(path, make=True)
        if not folder.close_to_others():
            folder.close()
            raise ConfigurationError(UsageCode.PLACE_UNFIT, f"{path} belongs to another user")
    return folder
