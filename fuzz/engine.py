"""One fuzzer in a process of its own, which libFuzzer takes over: `python -m fuzz.engine TARGET [OPTION...]`."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable

import atheris

from .targets import NAMES

INPUT_SECONDS = 10.0
"""Of the processor: one input that takes more is a finding. The slowest take some 0.1 s.

A busy machine may take as long over an honest input by the clock.
"""


def timed(run: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a target's `run` that also raises for an input over which it works too long."""

    def bounded(data: bytes) -> None:
        begun = time.process_time()
        run(data)
        taken = time.process_time() - begun
        if taken > INPUT_SECONDS:
            raise AssertionError(f"it took {taken:.1f} s of the processor")

    return bounded


ADDR_NO_RANDOMIZE = 0x0040000


def at_fixed_addresses() -> None:
    """Begin again with memory at the same addresses each time: what libFuzzer chooses depends on them.

    A machine that forbids it tries other inputs.
    """
    personality = ctypes.CDLL(None).personality
    now = personality(0xFFFFFFFF)
    if not now & ADDR_NO_RANDOMIZE and personality(now | ADDR_NO_RANDOMIZE) != -1:
        os.execv(sys.executable, [sys.executable, "-m", "fuzz.engine", *sys.argv[1:]])  # noqa: S606 (itself)


def main() -> None:
    name, *options = sys.argv[1:]
    if any(option.startswith("-seed=") and option != "-seed=0" for option in options):
        at_fixed_addresses()
    if name not in NAMES:
        raise SystemExit(f"no target {name!r}; there are {', '.join(NAMES)}")
    # Only the product is watched: the judge's and the libraries' branches say nothing of where the product has been.
    with atheris.instrument_imports(include=["sandbox_kernel"]):
        from .targets import load, ready

        load(name)
    with ready(name) as target:
        atheris.Setup([f"fuzz-{name}", *options], timed(target.run))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
