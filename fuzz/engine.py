"""One fuzzer in a process of its own, which libFuzzer takes over: `python -m fuzz.engine TARGET [OPTION...]`."""

from __future__ import annotations

import sys

import atheris

from .targets import NAMES


def main() -> None:
    name, *options = sys.argv[1:]
    if name not in NAMES:
        raise SystemExit(f"no target {name!r}; there are {', '.join(NAMES)}")
    # Only the product is watched: the judge's and the libraries' branches say nothing of where the product has been.
    with atheris.instrument_imports(include=["sandbox_kernel"]):
        from .targets import load, ready

        load(name)
    with ready(name) as target:
        atheris.Setup([f"fuzz-{name}", *options], target.run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
