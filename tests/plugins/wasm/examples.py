"""Prints the examples in docstrings of numpy, pandas, scipy and scikit-learn. Source: a Python of the machine runs it.

A JSON list of lists: of each docstring the code of its examples, in order. Left out are those that plot, reach for
files or a network, or say themselves that nobody runs them.
"""

import doctest
import importlib
import inspect
import json
import re
import warnings

MODULES = (
    "numpy numpy.linalg numpy.fft numpy.ma numpy.polynomial numpy.polynomial.polynomial numpy.lib.stride_tricks "
    "numpy.char numpy.strings numpy.testing numpy.random pandas pandas.api.types pandas.api.extensions "
    "pandas.core.groupby pandas.tseries.offsets pandas.core.window.rolling pandas.core.resample "
    "pandas.core.strings.accessor pandas.core.indexes.accessors scipy.linalg scipy.special scipy.fft scipy.ndimage "
    "scipy.sparse scipy.spatial scipy.interpolate scipy.integrate scipy.signal scipy.cluster.hierarchy "
    "scipy.cluster.vq scipy.constants scipy.spatial.distance scipy.sparse.csgraph sklearn.preprocessing "
    "sklearn.metrics sklearn.metrics.pairwise sklearn.model_selection sklearn.feature_extraction.text sklearn.utils "
    "sklearn.linear_model sklearn.impute sklearn.pipeline sklearn.cluster sklearn.naive_bayes sklearn.neighbors"
)
LEFT_OUT = re.compile(
    r"plt\.|matplotlib|\+SKIP|open\(|tempfile|urlopen|read_\w+\(['\"]|thread|joblib|n_jobs|fetch_|timeit|memmap"
    r"|\.to_(csv|excel|sql|pickle|parquet|feather|hdf|stata|orc|clipboard)\(|tofile|fromfile|genfromtxt|savez?\("
    r"|np\.load|import os|ctypes|show_versions|numba|pyarrow"
)


def found(module):
    for name in sorted(dir(module)):
        one = getattr(module, name, None)
        if name.startswith("_") or not getattr(one, "__doc__", None):
            continue
        yield one.__doc__
        if inspect.isclass(one):
            for inner in sorted(dir(one)):
                if not inner.startswith("_"):
                    yield getattr(getattr(one, inner, None), "__doc__", None)


def main():
    warnings.simplefilter("ignore")
    seen, groups = set(), []
    for name in MODULES.split():
        for text in found(importlib.import_module(name)):
            if isinstance(text, str) and ">>>" in text and text not in seen and not LEFT_OUT.search(text):
                seen.add(text)
                try:
                    codes = [one.source for one in doctest.DocTestParser().get_examples(text)]
                except ValueError:
                    continue
                groups.append([name, codes])
    print(json.dumps(groups))


main()
