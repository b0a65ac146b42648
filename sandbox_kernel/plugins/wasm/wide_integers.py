"""The guest's program with a default integer of 64 bits: numpy's code, changed in a few places before it is compiled.

numpy takes `intp` for its default integer, which has 32 bits in WebAssembly, and decides so while it is built. Where
its compiled code asks for the default (not for an index), the number of the type is one byte of the program: 7 for
`long`, 9 for `long long`. What is changed is listed by function and place, for one program, known by its digest
before and after. Results of compiled code that are indices stay as its callers expect: `inside/integers.py` has the
rest.

Sources: `numpy/_core/src` of numpy 2.5.2, by the functions' names; the program's section `name` has them, and a test
compares.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ...core.codes import EndCode
from ...core.errors import EngineError

BEFORE = "879bdb628a1a799dc3a6d1a645fee0f88944bf4cdf5e1628e0e1d2b4b33d28d3"
AFTER = "b79a1a124a06849506e3d1682d22ab2f4062da7b9596766e518022095db3c7db"
SAMPLES = "__pyx_fuse_1__pyx_f_7sklearn_5utils_7_random__sample_without_replacement_with_"
INT, INT32 = "f4b2b98c00", "f0becd8c00"
"""The addresses of two types, as the program writes them: Python's int, and numpy's int32."""
EDITS = (
    # A Python int that becomes an array, alone, of a known value, and beside booleans.
    ("int_default_descriptor", 4994006, "07", "09"),
    ("discover_descriptor_from_pylong", 4993911, "07", "09"),
    ("discover_descriptor_from_pylong", 4993976, "07", "09"),
    ("int_common_dtype", 4994061, "dc", "e4"),  # the variable _DefaultInt_dtype in place of _Intp_dtype
    ("int_common_dtype", 4994326, "dc", "e4"),
    ("initialize_legacy_dtypemeta_aliases", 5028396, "05", "07"),  # which is that of long long
    ("_multiarray_umath_exec", 5785377, "07", "09"),
    # `int` as a dtype, and arange.
    ("_convert_from_any", 5030385, "07", "09"),
    ("PyArray_ArangeObj", 4981424, "07", "09"),
    # Sums and products of narrower types: of booleans, of up to 7 bytes (3 before), by a table of types.
    ("reducelike_promote_and_resolve", 6695825, "07", "09"),
    ("reducelike_promote_and_resolve", 6695846, "03", "07"),
    ("", 79626545, "0807080708070807", "0a090a090a090a09"),
    # A short cut of ufuncs, which takes a Python int as 32 bits, is never taken: what is loaded is not zero.
    ("ufunc_generic_fastcall", 6647282, "2802d803", "01010101"),
    # Where compiled code asks for indices, int64 is taken: "same kind" in place of "safe".
    ("PyArray_FromArray", 4974395, "02", "03"),
    # scikit-learn makes an array of `int` for code that was compiled for `long`: the dtype that it names is int32.
    (SAMPLES + "tracking_selection", 52768169, INT, INT32),
    (SAMPLES + "tracking_selection", 52768227, INT, INT32),
    (SAMPLES + "pool", 52783475, INT, INT32),
    (SAMPLES + "pool", 52784582, INT, INT32),
    (SAMPLES + "reservoir_sampling", 52798046, INT, INT32),
    (SAMPLES + "reservoir_sampling", 52798104, INT, INT32),
)
"""The function (none: data), the place in the file, and bytes before and after, in hexadecimal digits."""


def widen(program: Path) -> None:
    """Change a program in its file. Raises `EngineError` if it is not the one whose places are known."""
    content = bytearray(program.read_bytes())
    if hashlib.sha256(content).hexdigest() != BEFORE:
        words = f"{program.name} is of another release: the places of numpy's default integer in it are not known"
        raise EngineError(EndCode.IMAGE_NOT_BUILT, words)
    for _, place, _, after in EDITS:
        content[place : place + len(after) // 2] = bytes.fromhex(after)
    if hashlib.sha256(content).hexdigest() != AFTER:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{program.name} is not what a change of its integers makes of it")
    program.write_bytes(content)
