"""What is done once within a sandbox, when a root without an image was made: filling the home that each session copies.

It runs there as a cell would, with the packages read-only and no network, for it runs their code. What an image has of
this is made by `recipe.py`.
"""

import subprocess
import sys
from pathlib import Path

HOME = Path("/opt/sandbox/home")
CODES = ("import matplotlib.font_manager", "import jedi; jedi.Interpreter('impor', [{}]).complete()")
"""The first plot would search all fonts, and the first completion parse the types of Python's own modules."""

if __name__ == "__main__":
    for code in CODES:  # of a package that is not there, nothing is prepared
        subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL)
