"""A folder from elsewhere, as the nucleus' tests of the working folder have it."""

from tests.unit.test_working_folder import repo

__all__ = ["repo"]
