"""The codes of packages for a sandbox that runs: why they cannot come. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.code import Code


@unique
class PackageCode(Code):
    """Why packages cannot be installed into a sandbox that runs."""

    PACKAGE_NOT_ALLOWED = "violation", "that is no package that cells may install", "Add it to the setting packages."
    PACKAGE_WITHOUT_WHEEL = (
        "failure",
        "there is no wheel of a package that fits the sandbox",
        "Ask for another version, or build the package into an image.",
    )
    PACKAGE_CONFLICT = (
        "failure",
        "a package does not go with what the sandbox has",
        "Ask for another version, or build an image with the one that is wanted.",
    )
    PACKAGE_HASH_WRONG = "violation", "a package does not have the hash that it should", "See where it came from."
    PACKAGE_TOO_LARGE = "limit", "a package is too large", "Raise packages_size, or build it into an image."
    PACKAGES_TOO_SLOW = "limit", "the index took too long", "Try again, or see whether the host reaches the index."
    PACKAGES_UNKNOWN = (
        "failure",
        "the sandbox does not say what it has",
        "Restart it: a cell may have replaced what answers.",
    )
    PACKAGES_NOT_UNPACKED = (
        "failure",
        "the packages could not be unpacked in the sandbox",
        "See whether its scratch is full (scratch_size).",
    )
