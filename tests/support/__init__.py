"""Helpers of the tests, in one place: `from tests.support.kernels import Kernel`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
