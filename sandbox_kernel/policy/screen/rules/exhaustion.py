"""Resources: loops and recursion without an end, memory, disk, processors, texts that unfold."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.EXHAUST_LOOP,
        weight=Weight.MEDIUM,
        cwe=835,
        script=(
            r"\bwhile\s+(true|:|\[\s*1\s*\]|\(\(\s*1\s*\)\)|1)\s*[;\n]\s*do\b",
            r"\bfor\s*\(\(\s*;\s*;\s*\)\)",
            r"\buntil\s+false\b",
            r"(^|[\s;|&])yes\s*(\||>|&|$)",
            r"\bwatch\s+-n",
        ),
        text=(r"\bwhile true; ?do\b|\bwhile :; ?do\b",),
    ),
    Rule(
        code=ScreenCode.EXHAUST_FORK,
        weight=Weight.CRITICAL,
        cwe=400,
        text=(
            r":\s*\(\s*\)\s*\{\s*:\s*\|\s*:\s*&\s*\}\s*;?\s*:",
            r"\b(\w+)\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&\s*\}",
            r"%0\|%0",
        ),
        endless=words(
            "os.fork os.forkpty threading.Thread _thread.start_new_thread multiprocessing.Process subprocess.Popen multiprocessing.Pool os.system"
        ),
    ),
    Rule(
        code=ScreenCode.EXHAUST_MEMORY,
        weight=Weight.HIGH,
        cwe=400,
        script=(
            r"\b(head|tail)\b[^|;\n]*/dev/zero[^;\n]*\|\s*tail\b",
            r"\b(stress|stress-ng)\b[^;\n]*--vm\b",
            r"\btail\s+/dev/zero\b",
            r"</dev/zero\s+tail\b",
        ),
    ),
    Rule(
        code=ScreenCode.EXHAUST_DISK,
        weight=Weight.HIGH,
        cwe=400,
        names=words("os.posix_fallocate"),
        shell=(
            r"^fallocate .*-l ?\d+[GTP]",
            r"^truncate .*(-s|--size)[ =]?\+?\d+[GTP]",
            r"^dd .*if=/dev/(zero|urandom|random)(?!.*\bcount=[1-9]\d{0,2}\b(?! ?\d))",
            r"^dd .*bs=\d+[GT]",
        ),
        script=(r"\b(yes|cat /dev/(zero|urandom))\b[^;\n|]*>\s*\S+", r"\bwhile\b[^\n]*>>\s*\S+[^\n]*\bdone\b"),
    ),
    Rule(
        code=ScreenCode.EXHAUST_PROCESSOR,
        weight=Weight.MEDIUM,
        cwe=400,
        shell=(r"^(stress|stress-ng|sysbench|cpuburn|openssl speed|7z b)\b",),
    ),
    Rule(
        code=ScreenCode.EXHAUST_EXPANSION,
        weight=Weight.MEDIUM,
        cwe=776,
        text=(
            r"(?s)<!ENTITY\s+\w+\s+\"(&\w+;){3,}",
            r"(?s)<!ENTITY\s+\w+\s+SYSTEM\b",
            r"\((\[?[\w.^-]+\]?[+*]|\.\*|\\[wdsWDS][+*]|\w\|\w+)\)[+*]\$?|\(\(\w\+?\)[+*]\)[+*]",
            r"\bzip ?bomb\b|\b42\.zip\b|\bbillion laughs\b",
        ),
    ),
    Rule(
        code=ScreenCode.EXHAUST_LIMITS,
        weight=Weight.LOW,
        cwe=400,
        names=words(
            "resource.setrlimit resource.prlimit os.nice os.sched_setaffinity os.sched_setscheduler os.setpriority sys.set_int_max_str_digits"
        ),
        shell=(r"^(ulimit|nice -n ?-|renice|ionice|prlimit|taskset|cpulimit)\b",),
    ),
    Rule(code=ScreenCode.EXHAUST_WAIT, weight=Weight.MEDIUM, cwe=400, shell=(r"^sleep (infinity|\d{5,}|\d+d)\b",)),
)
