"""The codes of packages for a sandbox that runs: why they cannot come. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_VERSION = "Ask for another version, or build it into an image."
_RESTART = "Restart the sandbox: a cell may have broken it."


@unique
class PackageCode(Code):
    """Why packages cannot be installed into a sandbox that runs."""

    PACKAGE_NOT_ALLOWED = "violation", "that is no package that cells may install", "Add it to the setting packages."
    PACKAGE_WITHOUT_WHEEL = "failure", "no wheel of a package fits the sandbox", _VERSION
    PACKAGE_CONFLICT = "failure", "a package conflicts with one that the sandbox has", _VERSION
    PACKAGE_HASH_WRONG = "violation", "a package does not have the expected hash", "Check where it came from."
    PACKAGE_TOO_LARGE = "limit", "a package is too large", "Raise packages_size, or build it into an image."
    PACKAGES_TOO_SLOW = "limit", "the index took too long", "Try again, or check whether the host reaches the index."
    PACKAGES_UNKNOWN = "failure", "the sandbox does not say what it has", _RESTART
    PACKAGES_NOT_UNPACKED = (
        "failure",
        "the packages could not be unpacked in the sandbox",
        "Check whether its scratch is full (scratch_size).",
    )
