"""The codes of requirements. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_PACKAGES = "Ask for other packages or versions."


@unique
class RequirementCode(Code):
    """Why packages of a user's own cannot be had."""

    PACKAGE_IMPROPER = "failure", "that is no name of a package or path of a wheel", _PACKAGES
    REQUIREMENTS_UNREADABLE = "failure", "the requirements cannot be read", "Fix the file that is named."
    REQUIREMENTS_UNMET = "failure", "the requirements cannot be met", _PACKAGES
