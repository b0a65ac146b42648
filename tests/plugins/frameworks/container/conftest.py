"""What the tests of the adapters share: no framework may look for another machine, and no sandbox is left."""

from tests.frameworks.conftest import no_other_machine, nothing_left, pytest_configure

__all__ = ["no_other_machine", "nothing_left", "pytest_configure"]
