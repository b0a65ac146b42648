"""The codes of what is asked for and cannot be: settings, arguments, notebooks, packages and places. Imports code only.

`EndCode.WRONG_SETTING` is for the value of one setting; these are for the rest.
"""

from __future__ import annotations

from enum import unique

from .code import Code

_HELP = "Run the command with --help, or see the call's documentation."
_FIX = "Fix the file that is named."
_PLACE = "Name another file or folder."
_INSTALL = "Install all of sandbox-kernel again."
_PACKAGES = "Ask for other packages or versions."


@unique
class UsageCode(Code):
    """Why nothing could be begun as it was asked for."""

    # --- settings and arguments ---
    UNKNOWN_SETTING = "failure", "there is no such setting", "Run `sandbox-kernel settings`."
    WRONG_ARGUMENT = "failure", "an argument has a wrong value", _HELP
    NOT_DETACHED = "failure", "only a detached sandbox outlives its caller", "Make it with detached=True."
    OF_THE_CALLER = (
        "failure",
        "a detached sandbox cannot have what its caller's process does for cells",
        "Leave out what is named, or make the sandbox without detached=True.",
    )
    NOT_TOGETHER = "failure", "two settings or arguments do not go together", _HELP
    NOT_ON_THIS_MACHINE = (
        "failure",
        "a setting cannot work on this machine",
        "Change the setting, or install with --force.",
    )
    CONFIG_FILE_FAILED = "failure", "a config file cannot be read", _FIX
    MEMORY_TOO_SMALL = (
        "failure",
        "the folders in memory could fill too much of it",
        "Raise memory, or lower scratch_size.",
    )

    SANDBOX_IN_TOOL = (
        "failure",
        "a tool cannot use the sandbox whose cell waits for it",
        "Use another sandbox in it, or return what the cell needs.",
    )

    # --- what a run takes and makes ---
    NOTEBOOK_UNREADABLE = "failure", "the notebook or script cannot be read", _PLACE
    NOTEBOOK_TOO_LARGE = "limit", "the notebook or script is too large", "Split it."
    NOT_A_NOTEBOOK = "failure", "it is not a Python notebook or script", _PLACE
    PLACE_UNFIT = "failure", "a file cannot be written there", _PLACE

    # --- packages and installations ---
    PACKAGE_MISSING = "failure", "this needs packages that are not installed", "Install the extra that is named."
    PLUGIN_MISSING = "failure", "this installation lacks a plugin", _INSTALL
    PLUGIN_UNUSABLE = "failure", "a plugin of another package cannot be used", "Update or uninstall that package."
    INSTALLATION_UNFIT = "failure", "this installation cannot be used", _INSTALL
    KERNELSPEC_NOT_WRITTEN = "failure", "the kernelspec cannot be written", "Choose --user or --sys-prefix."
    PACKAGE_IMPROPER = "failure", "that is no name of a package or path of a wheel", _PACKAGES
    REQUIREMENTS_UNREADABLE = "failure", "the requirements cannot be read", _FIX
    REQUIREMENTS_UNMET = "failure", "the requirements cannot be met", _PACKAGES

    # --- a server that others reach ---
    ADDRESS_UNUSABLE = "failure", "the server cannot listen there", "Choose another host or port."
