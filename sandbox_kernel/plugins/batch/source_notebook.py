"""What is to be run: a notebook or a script, from a file or from stdin, as a notebook without outputs.

Imports errors and handshake; nbformat and papermill, from the extra `run`, when they are needed. What is read here
may be hostile: it is parsed, bounded and validated, and nothing of its outputs or widget states is kept.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, FileRefused
from ...core.model import PYTHON_KERNEL
from ...core.remedies import install_words
from ...files.host_paths import open_file
from ...policy.handshake import KernelHandshake
from .codes import BatchCode

MAX_CELLS = 10_000
KERNEL = {"name": "sandbox-python", "display_name": "Python 3 (sandbox)", "language": "python"}
"""What the executed notebook says its kernel is: opened and run again, it stays in a sandbox."""

_MARKER = re.compile(r"^#\s*%%(?!%)(.*)$", re.MULTILINE)
_TAGS = re.compile(r"\btags=(\[[^\]]*\])")


@dataclass(slots=True)
class SourceNotebook:
    """A notebook to run, and where it came from."""

    name: str
    """The file as it was named, "-" for stdin."""
    kind: str
    """notebook or script."""
    sha256: str
    notebook: Any
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return Path(self.name).stem if self.name != "-" else "stdin"


def read(name: str, data: bytes, kernel: str = PYTHON_KERNEL) -> SourceNotebook:
    """Read what was fetched, which `kernel` is to run.

    Raises `ConfigurationError` for what is neither a notebook nor a script, or is of another language.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            UsageCode.NOTEBOOK_UNREADABLE, f"{name} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from None
    suffix = Path(name).suffix.lower()
    is_notebook = suffix == ".ipynb" or (suffix != ".py" and _looks_like_a_notebook(text))
    with _quiet():
        notebook = _notebook(name, text, kernel) if is_notebook else _script(name, text, kernel)
    if len(notebook.cells) > MAX_CELLS:
        raise ConfigurationError(
            UsageCode.NOTEBOOK_TOO_LARGE,
            f"{name} has too many cells",
            limit=str(MAX_CELLS),
            value=str(len(notebook.cells)),
        )
    kind = "notebook" if is_notebook else "script"
    return SourceNotebook(name, kind, hashlib.sha256(data).hexdigest(), notebook)


def is_run(cell: Any) -> bool:
    """Return whether a cell is code that is run: not blank, and not tagged to be left out."""
    return (
        cell.cell_type == "code" and bool(cell.source.strip()) and "skip-execution" not in cell.metadata.get("tags", ())
    )


# --- parameters ------------------------------------------------------------------------------------------------------


def parameterize(source: SourceNotebook, parameters: Mapping[str, Any]) -> None:
    """Put parameters where papermill puts them: into a cell of their own after the one tagged "parameters"."""
    if not parameters:
        return
    try:
        from papermill import __version__
        from papermill.parameterize import parameterize_notebook
    except ImportError as error:
        raise missing("parameters", error) from None

    notebook = source.notebook
    for cell in notebook.cells:
        cell.metadata.setdefault("tags", [])
    default = {"default_parameters": {}, "parameters": {}, "environment_variables": {}, "version": __version__}
    notebook.metadata["papermill"] = notebook_node(default)
    values = dict(parameters)
    try:
        with _quiet():
            spec = notebook.metadata["kernelspec"]
            source.notebook = parameterize_notebook(
                notebook, values, kernel_name=spec["name"].removeprefix("sandbox-"), language=spec["language"]
            )
    except Exception as error:  # papermill's own, and what a value of a strange type makes of it
        raise ConfigurationError(
            BatchCode.PARAMETERS_WRONG, f"the parameters cannot be put into the notebook: {error}"
        ) from error
    source.notebook.metadata.papermill["parameters"] = notebook_node(plain(values))
    source.parameters = plain(values)


def read_parameters(
    typed: Iterable[tuple[str, str]], raw: Iterable[tuple[str, str]], texts: Iterable[str], files: Iterable[str]
) -> dict[str, Any]:
    """Return parameters as papermill reads its options of the same names: files, then YAML, then single values."""
    found: dict[str, Any] = {}
    for document in (*(_file(name) for name in files), *texts):
        found |= _yaml(document)
    for name, text in typed:
        found[name] = _typed(text)
    found |= dict(raw)
    for name in found:
        if not name.isidentifier():
            raise ConfigurationError(
                BatchCode.PARAMETERS_WRONG,
                f"the parameter {name!r} has no name of a Python variable",
                setting="-p",
            )
    return found


def _typed(text: str) -> Any:
    """Return the value of `-p NAME TEXT`: True, False, None, a whole number, a number, or else the text."""
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _file(name: str) -> str:
    try:
        with os.fdopen(open_file(name, pipes=True), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError, FileRefused) as error:
        raise ConfigurationError(
            BatchCode.PARAMETERS_WRONG, f"the parameters cannot be read from {name}: {error}", setting="-f"
        ) from None


def _yaml(document: str) -> dict[str, Any]:
    try:
        import yaml
        from papermill.iorw import NoDatesSafeLoader
    except ImportError as error:
        raise missing("parameters", error) from None
    try:
        found = yaml.load(document, Loader=NoDatesSafeLoader)  # noqa: S506 (a safe loader)
    except Exception as error:  # a tag on what is none of its kind, as `!!int x`, raises whatever its reading does
        raise ConfigurationError(BatchCode.PARAMETERS_WRONG, f"the parameters are not YAML: {error}") from None
    if not isinstance(found or {}, dict) or not all(isinstance(name, str) for name in found or ()):
        raise ConfigurationError(
            BatchCode.PARAMETERS_WRONG, "the parameters in YAML are not a mapping of names to values"
        )
    return dict(found or {})


def plain(value: Any, depth: int = 0) -> Any:
    """Return a copy that JSON can hold: what it cannot is given as Python writes it."""
    if value is None or isinstance(value, (bool, str)) or (isinstance(value, (int, float)) and value - value == 0):
        return value
    if depth < 20 and isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if depth < 20 and isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    return repr(value)[:200]


# --- notebooks and scripts -------------------------------------------------------------------------------------------


def _looks_like_a_notebook(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "nbformat" in document


def _notebook(name: str, text: str, kernel: str) -> Any:
    import nbformat

    problem: dict[str, Any] = {}
    try:
        notebook = nbformat.reads(text, as_version=4)
        notebook = nbformat.v4.upgrade(notebook)
        _, notebook = nbformat.validator.normalize(notebook, strip_invalid_metadata=True)
        nbformat.validate(notebook)
    except (nbformat.ValidationError, nbformat.reader.NotJSONError) as error:
        problem["error"] = next(iter(str(error).splitlines()), "")
    except Exception as error:  # a broken notebook breaks the converters in any way
        problem["error"] = f"{type(error).__name__}: {error}"
    if problem:
        raise ConfigurationError(UsageCode.NOT_A_NOTEBOOK, f"{name} is not a proper notebook: {problem['error'][:300]}")
    language = notebook.metadata.get("kernelspec", {}).get("language") or notebook.metadata.get(
        "language_info", {}
    ).get("name", "python")
    if (str(language).lower() in ("python", "ipython", "python3")) != (kernel == PYTHON_KERNEL):
        cells = "cells here are Python" if kernel == PYTHON_KERNEL else f"the kernel is {kernel}"
        raise ConfigurationError(
            UsageCode.NOT_A_NOTEBOOK, f"{name} is a notebook in {str(language)[:100]}; {cells}", setting="kernel"
        )
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata.pop("widgets", None)
    if "language_info" in notebook.metadata:  # nbconvert imports the exporter that is named there
        said = KernelHandshake(kernel)
        said.restore(notebook.metadata)
        notebook.metadata["language_info"] = notebook_node(said.known["language_info"])
    notebook.metadata["kernelspec"] = notebook_node(_kernelspec(kernel, str(language)))
    return notebook


def _kernelspec(kernel: str, language: str) -> dict[str, str]:
    """Return what the executed notebook says its kernel is: that of `install --kernel`, if it is not Python."""
    if kernel == PYTHON_KERNEL:
        return KERNEL
    return {"name": f"sandbox-{kernel}", "display_name": f"{kernel} (sandbox)", "language": language[:100]}


def _script(name: str, text: str, kernel: str) -> Any:
    """Return a script as a notebook: a cell for each `# %%` of the percent format, otherwise one cell."""
    import nbformat

    if kernel != PYTHON_KERNEL:
        words = f"{name} is no notebook: a script is run as Python, and the kernel is {kernel}"
        raise ConfigurationError(UsageCode.NOT_A_NOTEBOOK, words, setting="kernel")
    if "\0" in text:
        raise ConfigurationError(
            UsageCode.NOT_A_NOTEBOOK, f"{name} is neither a notebook nor a script: it contains NUL bytes"
        )
    parts = _MARKER.split(text)
    cells = [] if not parts[0].strip() else [nbformat.v4.new_code_cell(parts[0].strip("\n"))]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if re.match(r"\s*.*\[(markdown|md|raw)\]", title):
            lines = [re.sub(r"^#\s?", "", line) for line in body.strip("\n").splitlines()]
            cells.append(nbformat.v4.new_markdown_cell("\n".join(lines)))
            continue
        cell = nbformat.v4.new_code_cell(body.strip("\n"))
        if (found := _TAGS.search(title)) and (tags := _tags(found[1])):
            cell.metadata["tags"] = tags
        cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": dict(KERNEL)})


def _tags(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [tag for tag in found if isinstance(tag, str)]


def notebook_node(value: Mapping[str, Any]) -> Any:
    import nbformat

    return nbformat.from_dict(value)


def missing(what: str, error: ImportError) -> ConfigurationError:
    """Return the error for a package of the extra that is not there."""
    return ConfigurationError(UsageCode.PACKAGE_MISSING, f"{what} need more packages: {install_words('run')} ({error})")


@contextmanager
def _quiet() -> Any:
    """Keep the warnings and log lines of the notebook packages to ourselves: what matters is raised as an error."""
    loggers = [logging.getLogger(name) for name in ("traitlets", "papermill")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
