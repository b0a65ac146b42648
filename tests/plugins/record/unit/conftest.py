"""A folder from elsewhere, as the nucleus' tests of the working folder have it."""

from tests.unit.files.test_folder_policy import repo

__all__ = ["repo"]
