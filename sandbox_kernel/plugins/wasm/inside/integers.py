"""What numpy and pandas give a cell where a pointer has 32 bits: integers of 64 bits, as on every machine people know.

The default integer of numpy is 32 bits wide there, and arithmetic on it overflows without a word. The program itself is
changed for what numpy makes (`wide_integers`, on the host): arrays, `int` as a dtype, sums. This module does the rest,
once, after numpy and pandas are imported. Names of the default integer (`np.int_`, `"int"`, `np.uint`) mean 64 bits.
And indices and counts, which stay 32 bits wide for compiled code, are 64 bits wide for cells.

Who calls decides: code below `LIBRARIES` gets what it was compiled for, everything else, a cell above all, 64 bits.

What remains 32 bits wide, so that arithmetic on it can still overflow:

- what is asked for by the names `np.intp`, `np.uintp`, `np.long`, `np.ulong`, `"l"`, `"p"` and `"n"`;
- indices and counts that a library hands on: in `Series.apply(np.argsort)`, of scikit-learn (`LabelEncoder`, neighbors,
  labels of clusters, leaves of trees, `ShuffleSplit`), of scipy (`find_peaks`, trees, sparse indices), of pandas
  (`indices` of groups, `codes` of a `MultiIndex`);
- what `np.random.zipf`, `geometric` and others of `RandomState` draw above 2**31; `Generator` has 64 bits.

A product with a Python int that does not fit raises `OverflowError` there; a product of two such arrays says nothing.
Other numbers of such a machine: `sys.maxsize`, `hash()`, `len()` above 2**31 (it raises), sizes in memory. Compiled
code that asks for 32 bits takes int64 and does not look whether it fits: as indices, for no array is as long. Likewise
it takes float64 for float32.

numpy alone is imported here, and pandas if it is there.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

LIBRARIES = ("/usr/local/lib/", "/opt/site/", "<frozen ")
"""Where modules of the image lie: how the names of their files begin."""
IMMUTABLE = 1 << 8
"""`Py_TPFLAGS_IMMUTABLETYPE` of CPython."""
TYPE_WORDS = 60
ALL, EACH, FIRST, LATER = slice(None), slice(0, None), slice(0, 1), slice(1, None)
"""Which of a tuple's items are indices or counts; for the first and the third, also a result that is no tuple."""
TABLE: tuple[tuple[str, str, slice, str], ...] = (
    (
        "numpy",
        "",
        ALL,
        """argmax argmin argpartition argsort argwhere bincount count_nonzero digitize flatnonzero lexsort mask_indices
        nanargmax nanargmin nonzero ravel_multi_index searchsorted tril_indices tril_indices_from triu_indices
        triu_indices_from unravel_index""",
    ),
    ("numpy", "", FIRST, "histogram"),
    ("numpy", "", LATER, "intersect1d unique unique_all unique_counts unique_inverse"),
    ("numpy", "", EACH, "where"),
    ("numpy", "ndarray", ALL, "argmax argmin argpartition argsort nonzero searchsorted"),
    ("numpy.linalg", "", ALL, "matrix_rank"),
    ("numpy.strings", "", ALL, "count find index rfind rindex str_len"),
    ("numpy.char", "", ALL, "count find index rfind rindex str_len"),
    ("numpy.ma", "", ALL, "argmax argmin argsort count nonzero"),
    ("numpy.ma", "MaskedArray", ALL, "argmax argmin argsort count nonzero"),
    (
        "numpy.random",
        "RandomState",
        ALL,
        """binomial choice geometric hypergeometric logseries multinomial negative_binomial permutation poisson
        random_integers tomaxint zipf""",
    ),
    ("pandas", "", FIRST, "cut factorize qcut"),
    ("pandas", "Series", ALL, "argmax argmin argsort searchsorted"),
    ("pandas", "Series", FIRST, "factorize"),
    ("pandas", "Index", ALL, "argmax argmin argsort get_indexer get_indexer_for searchsorted"),
    ("pandas", "Index", FIRST, "factorize"),
    ("pandas", "Index", LATER, "get_indexer_non_unique"),
)
"""Module, type or nothing, places, and the functions or methods of it whose results are indices or counts."""
COMPILED = (
    (
        "pandas._libs.internals",
        "get_blkno_indexers get_blkno_placements get_concat_blkno_indexers update_blklocs_and_blknos",
    ),
    ("pandas._libs.lib", "generate_slices get_level_sorter get_reverse_indexer indices_fast maybe_indices_to_slice"),
)
"""Compiled functions of pandas that get the default integer for `intp`, which is the same on other machines."""


def install() -> None:
    """Make integers 64 bits wide for cells; nothing where they are already."""
    if np.dtype(np.intp).itemsize == np.dtype(np.int64).itemsize:
        return
    _names()
    for module, cls, places, names in TABLE:
        if module.startswith("pandas") and "pandas" not in sys.modules:
            continue
        owner = importlib.import_module(module)
        owner = getattr(owner, cls) if cls else owner
        with _open(owner):
            for name in names.split():
                if hasattr(owner, name):
                    setattr(owner, name, for_cells(getattr(owner, name), places))
    for module, names in COMPILED if "pandas" in sys.modules else ():
        owner = importlib.import_module(module)
        for name in names.split():
            setattr(owner, name, for_compiled_code(getattr(owner, name)))
    random: Any = np.random.RandomState
    with _open(random):
        random.randint = _with_int64(random.randint)
    _functions_of_the_shared_generator()


def for_cells(
    function: Callable[..., Any], places: slice = ALL, narrow: type[np.generic] = np.intp
) -> Callable[..., Any]:
    """Return a function whose results of the type `narrow` are int64 for whoever is not a library.

    Args:
        function: What returns indices or counts, alone, or in a tuple at `places`.
        places: What of a tuple is meant. A result that is no tuple is meant unless the first place is not.
        narrow: The scalar type of what compiled code calls an index.
    """

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        if sys._getframe(1).f_code.co_filename.startswith(LIBRARIES) or options.get("out") is not None:
            return result
        if not isinstance(result, (tuple, list)):
            return _wide(result, narrow) if places in (ALL, FIRST) else result
        new = list(result)
        new[places] = [_wide(one, narrow) for one in new[places]]
        return new if isinstance(result, list) else _as_tuple(type(result), new)

    return call


def _as_tuple(kind: Any, items: list[Any]) -> Any:
    return kind(*items) if hasattr(kind, "_fields") else tuple(items)


def _wide(value: Any, narrow: type[np.generic]) -> Any:
    if isinstance(value, narrow):
        return np.int64(value)
    if getattr(value, "dtype", None) == narrow and hasattr(value, "astype"):
        return value.astype(np.int64)
    return value


def for_compiled_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that takes int64 where it asks for `intp`: it refuses, and is asked again."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except ValueError:
            given = [*args, *options.values()]
            found = [*map(_as_intp, given)]
            if any(one is not other for one, other in zip(given, found, strict=True)):
                with contextlib.suppress(ValueError):  # else it was about something else
                    return function(*found[: len(args)], **dict(zip(options, found[len(args) :], strict=True)))
            raise

    return call


def _as_intp(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_intp(one) for one in value]
    return value.astype(np.intp) if isinstance(value, np.ndarray) and value.dtype == np.int64 else value


def _with_int64(randint: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(randint)
    def call(self: Any, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        if dtype is not int:
            return randint(self, low, high, size, dtype)
        drawn = randint(self, low, high, size, np.int64)
        return int(drawn) if size is None else drawn

    return call


def _functions_of_the_shared_generator() -> None:
    """`np.random.randint` and its like are methods of one generator, taken from it when numpy was imported."""
    shared = np.random.mtrand._rand
    [drawn] = [names.split() for _, cls, _, names in TABLE if cls == "RandomState"]
    for name in ("randint", *drawn):
        for module in (np.random, np.random.mtrand):
            if hasattr(module, name):
                setattr(module, name, getattr(shared, name))


def _names() -> None:
    """Names of the default integer, in numpy's namespaces and tables."""
    arrayprint, numerictypes, converter = (
        importlib.import_module("numpy._core.arrayprint"),
        importlib.import_module("numpy._core.numerictypes"),
        importlib.import_module("numpy.lib._iotools").StringConverter,
    )
    for name, scalar in (("int_", np.int64), ("uint", np.uint64)):
        for module in (np, numerictypes):
            setattr(module, name, scalar)
        numerictypes.sctypeDict[name] = scalar
    numerictypes.sctypeDict["int"] = np.int64
    arrayprint._typelessdata[:] = [np.int64 if one is np.intp else one for one in arrayprint._typelessdata]
    converter._mapper[:] = [one for one in converter._mapper if one[0] is not np.intp]


@contextlib.contextmanager
def _open(owner: Any) -> Iterator[None]:
    """Let attributes of a type of C be set for a while, by its bit in this process's own memory."""
    if not getattr(owner, "__flags__", 0) & IMMUTABLE:
        yield
        return

    where = {"data": (id(owner), False), "shape": (TYPE_WORDS,), "typestr": "<u4", "version": 3}
    words = np.asarray(SimpleNamespace(__array_interface__=where))
    [place] = [n for n, word in enumerate(words.tolist()) if word == owner.__flags__]
    words[place] &= ~np.uint32(IMMUTABLE)
    try:
        yield
    finally:
        words[place] |= np.uint32(IMMUTABLE)
