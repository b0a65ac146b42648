"""The images and roots that this project builds, by their names, and the command that makes one which is missing.

Public: plugins may import it.
"""

from __future__ import annotations

import shlex
from typing import Literal, get_args

Kind = Literal["base", "data", "full", "r", "deno", "all"]

BY_NAME: dict[str, Kind] = {f"sandbox-kernel:{kind}": kind for kind in get_args(Kind)}
"""The kinds by the names of their images and roots."""
DEFAULT: Kind = "data"


FULL = "sandbox-kernel:full"
_OF_FULL = """
contextily ebooklib extract-msg fastavro folium gensim geopandas graphviz h5py imageio img2pdf kaleido librosa lightgbm
mammoth markdown netcdf4=netCDF4 nltk ocrmypdf odfpy=odf opencv-python=cv2 opencv-python-headless=cv2 pdf2image
pillow-heif plotnine prophet pydub pymupdf=fitz pyproj pyreadr pyreadstat pyshp=shapefile pytesseract
python-magic=magic rasterio scikit-image=skimage shap soundfile spacy striprtf tables textblob wordcloud xarray xgboost
zarr
"""
FULL_MODULES = {
    name: module or name.replace("-", "_") for name, _, module in (word.partition("=") for word in _OF_FULL.split())
}
"""Packages that `full` has and the default image lacks: the name that pip knows, and the module."""
FULL_PROGRAMS = frozenset(
    """
    7z convert dot ffmpeg ffprobe g++ gcc gs libreoffice magick make node pandoc pdftoppm pdftotext rsync soffice
    sqlite3 tesseract wget zstd
    """.split()  # noqa: SIM905 (one line says no more)
)
"""Programs of the same kind, but for those that a missing file may well be called: file, less, tree."""


def build_command(name: str, engine: str = "docker") -> str | None:
    """Return the command that makes an image or a root of this name, for an engine; None for what others make."""
    kind = BY_NAME.get(name)
    of_engine = "" if engine == "docker" else f" --engine {engine}"
    if kind is None and ((engine == "docker" and not name.startswith("sandbox-kernel:")) or name.startswith("/")):
        return None
    more = f" --requirements FILE --tag {shlex.quote(name)}" if kind is None else f" --kind {kind}"
    return f"sandbox-kernel build{of_engine}{'' if kind == DEFAULT else more}"
