"""What dotted names mean to the Python reader: modules, shorthands, second names, and kinds of calls. Data."""

from __future__ import annotations

import builtins
import re


def words(text: str) -> tuple[str, ...]:
    """Return what stands in a text, split at spaces."""
    return tuple(text.split())


MODULES = frozenset(
    words(
        "os sys subprocess socket shutil requests urllib ctypes pickle base64 builtins importlib platform "
        "pathlib glob json marshal codecs zlib pty signal threading multiprocessing asyncio time math random "
        "re smtplib ftplib paramiko psutil tempfile http itertools functools operator types gc inspect mmap "
        "resource yaml hashlib getpass scapy posix nt runpy code atexit binascii ssl select struct winreg "
        "docker boto3 httpx aiohttp pynput pyautogui telnetlib dill"
    )
)
"""Modules that a name means where nothing else is known of it."""
SHORT = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "tf": "tensorflow", "sp": "subprocess"}
BUILTINS = frozenset((*dir(builtins), "__builtins__", "execfile", "unichr", "reload", "raw_input"))
SAME = {
    "io.open": "builtins.open",
    "_io.open": "builtins.open",
    "codecs.open": "builtins.open",
    "builtins.__builtins__": "builtins",
    "builtins.print.__self__": "builtins",
    "builtins.input.__self__": "builtins",
    "six.moves.builtins": "builtins",
    "posix": "os",
}
OWN_MODULE = re.compile(r".*\.(os|sys|subprocess|socket|builtins|shutil|importlib|pty|ctypes)", re.DOTALL)
"""A module that another one has imported, such as `glob.os`."""
ALIASES = {"posix": "os", "nt": "os", "posixpath": "os.path", "ntpath": "os.path"}
SECRET = re.compile(r"(?i)(secret|token|passw|passwd|api_?key|private_?key|credential|access_?key|_pwd\b|auth)")
PEOPLE = frozenset(
    words(
        "race gender sex religion ethnicity nationality skin_color skin_colour caste disability "
        "sexual_orientation sexuality country_of_origin national_origin marital_status"
    )
)
PATCHED = frozenset(
    words(
        "os sys builtins subprocess socket ssl json pickle importlib io time datetime random logging "
        "threading hashlib hmac shutil pathlib re math getpass urllib.request http.client requests pandas "
        "numpy sklearn torch"
    )
)
ASSIGNABLE = frozenset(
    words("stdout stderr stdin path argv ps1 ps2 tracebacklimit dont_write_bytecode last_traceback displayhook seed")
)
PLAIN_COMMAND = re.compile(
    r"^\s*(ls|pwd|echo|cat|head|tail|wc|mkdir|cp|mv|unzip|tar|gunzip|pip3?|python3? -m pip|conda|git|nvidia-smi|"
    r"which|clear|cls|date|sort|uniq|cut|grep|jupyter|ffmpeg|dot|wget|curl|apt|apt-get|pdflatex|make|touch|du|df|free|file|tree|nvcc|kaggle|gdown|java|R|Rscript)\b"
)
SHELL_CALLS = frozenset(
    words(
        "os.system os.popen subprocess.getoutput subprocess.getstatusoutput asyncio.create_subprocess_shell "
        "commands.getoutput nt.system IPython.utils.process.system pty.spawn pexpect.run pexpect.spawn "
        "get_ipython().system get_ipython().getoutput get_ipython().system_raw get_ipython().system_piped "
        "subprocess.run subprocess.call subprocess.Popen subprocess.check_output subprocess.check_call "
        "asyncio.create_subprocess_exec os.execl os.execle os.execlp os.execv os.execve os.execvp os.execvpe "
        "os.spawnl os.spawnlp os.spawnv os.spawnve os.spawnvp os.posix_spawn os.posix_spawnp"
    )
)
IMPORTERS = frozenset(words("builtins.__import__ importlib.import_module importlib.__import__"))
RUNNERS = frozenset(words("builtins.exec builtins.eval builtins.compile get_ipython().run_cell get_ipython().ex"))
NAMESPACES = frozenset(words("builtins.globals() builtins.locals() builtins.vars() sys.modules"))
QUIET = frozenset(words("get setdefault pop update keys __contains__ __getitem__ __setitem__ copy"))
"""Methods of the environment that do not give away all of it."""


def canonical(ref: str) -> str:
    """Return the usual name of what has several."""
    head, dot, rest = ref.partition(".")
    if head in ALIASES and dot:
        ref = f"{ALIASES[head]}.{rest}"
    if (match := OWN_MODULE.fullmatch(ref)) is not None and not ref.startswith(("pandas.io.", "test.")):
        return match[1]
    return SAME.get(ref, ref.removesuffix(".__call__"))
