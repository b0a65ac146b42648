"""What runs cells in both places, and says for each what it shows, prints and assigns. Source: it is sent as it is."""

import ast
import contextlib
import io
import json
import os
import re
import warnings

MANY = 2000


def number(value):
    """Return digits, of a float six: what compilers and libraries of mathematics leave open is noise."""
    if not isinstance(value, float):
        return str(value)
    return "0" if abs(value) < 1e-9 else "%.6g" % value


def said(value, depth=0):
    """Return texts of a value and of its types."""
    import numpy as np
    import pandas as pd

    if isinstance(value, np.generic):
        value = np.asarray(value)
        shape = "scalar"
    else:
        shape = str(getattr(value, "shape", ""))
    if isinstance(value, pd.DataFrame):
        parts = [
            said(value[name] if isinstance(value[name], pd.Series) else str(value[name]), depth + 1)
            for name in value.columns.unique()
        ]
        parts.append(said(value.index, depth + 1))
        return "%s %s %s" % (shape, [str(one) for one in value.columns], [a for a, _ in parts]), str(
            [b for _, b in parts]
        )
    if isinstance(value, (pd.Series, pd.Index)):
        kind = str(value.dtype)
        index = said(value.index, depth + 1) if isinstance(value, pd.Series) and depth < 2 else ("", "")
        value = (
            value.to_numpy()
            if not isinstance(value.dtype, np.dtype) or value.dtype.kind != "O"
            else np.asarray(value, object)
        )
        return said(value)[0] + index[0], kind + index[1]
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "mM" or value.dtype.names:
            return shape + str(value.ravel()[:MANY].tolist()), value.dtype.kind
        flat = value.ravel()
        flat = flat[:: max(1, flat.size // MANY)]
        kind = value.dtype.kind + ("" if value.dtype.kind in "OUST" else str(value.dtype.itemsize * 8))
        if value.dtype.kind == "O":
            return shape + str([said(one, 9)[0] for one in flat.tolist()]), kind
        if value.dtype.kind == "c":
            return shape + str(["%.5g%+.5g" % (one.real, one.imag) for one in flat.tolist()]), kind
        return shape + str([number(one) for one in flat.tolist()]), kind
    if isinstance(value, (bool, int, float)):
        return number(value), type(value).__name__
    if isinstance(value, dict) and depth < 4:
        parts = [(said(key, 9), said(one, depth + 1)) for key, one in list(value.items())[:MANY]]
        return str([(a[0], b[0]) for a, b in parts]), str([(a[1], b[1]) for a, b in parts])
    if isinstance(value, (list, tuple)) and depth < 4:
        parts = [said(one, depth + 1) for one in value[:MANY]]
        return str([a for a, _ in parts]), type(value).__name__ + str([b for _, b in parts])
    if isinstance(value, str):
        return text(value), "str"
    if isinstance(value, (np.dtype, type)):
        return "", str(value)
    return text(repr(value)), type(value).__name__


def text(value):
    value = re.sub(r"0x[0-9a-f]+", "", value)
    return re.sub(r"-?\d+\.\d+(e[-+]?\d+)?", lambda found: "%.5g" % float(found[0]), value)


def plain(value):
    import numpy as np
    import pandas as pd

    return isinstance(
        value, (np.generic, np.ndarray, pd.DataFrame, pd.Series, pd.Index, bool, int, float, str, list, tuple, dict)
    )


def one(code, names):
    printed = io.StringIO()
    try:
        tree = ast.parse(code)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, "<cell>", "exec"), names)
            shown = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None
        tree = ast.parse(code)
        apart = {n for one in ast.walk(tree) if isinstance(one, ast.comprehension) for n in ast.walk(one.target)}
        stored = (
            n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n not in apart
        )
        assigned = {n.id for n in stored}
        parts = [said(shown), (text(printed.getvalue()), "")]
        parts += [said(names[name]) for name in sorted(assigned) if name in names and plain(names[name])]
        return str([a for a, _ in parts]), str([b for _, b in parts]), ""
    except BaseException as error:
        return "", "", "%s: %s" % (type(error).__name__, str(error)[:200])


def main(cells, apart):
    """Run cells in turn. All begins anew after None, and before each cell if they are `apart`."""
    os.environ["MPLBACKEND"] = "Agg"
    warnings.simplefilter("ignore")
    names: dict[str, object] = {}
    for code in json.loads(cells):
        if apart or code is None or not names:
            names = {"__name__": "__main__", "display": print}
            exec("import numpy as np, pandas as pd, numpy.ma, scipy, sklearn", names) if apart or code is None else None
        if code is None:
            continue
        print("ANSWER " + json.dumps(one(code, names)), flush=True)
        if "matplotlib.pyplot" in __import__("sys").modules:
            __import__("sys").modules["matplotlib.pyplot"].close("all")
