"""What one kernel process on the host needs, at its highest, for messages of every shape at the limits of a session.

`python -m benchmarks.floods [CELLS [SHAPE...]]` sends each shape from that many cells, ten without a number, in one
session with default limits, and prints a row for each beside three times `message_limit`, which it must not reach.
"""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .kernels import Kernel

MIB = 1 << 20
LIMIT = 96 * MIB
BESIDE = 12 * MIB
"""Bytes that a first large message costs once: modules, the pipe's and the parser's own room."""

RAW = inspect.cleandoc(r"""
    import json
    kernel = get_ipython().kernel

    def repeated(piece, size):
        return piece * (size // len(piece))

    def shown(kind):
        return lambda body: ('display_data', b'{"data":{"' + kind + b'":' + body + b'},"metadata":{}}')

    def text(piece, end=b'', make=shown(b'text/plain')):
        return lambda size: make(b'"' + repeated(piece, size) + end + b'"')

    def tree(piece, last, make=shown(b'application/json')):
        return lambda size: make(b'[' + repeated(piece, size) + last + b']')

    def as_reply(key, kind='execute_reply'):
        return lambda body: (kind, b'{"status":"ok","execution_count":1,"' + key + b'":' + body + b'}')

    def as_error(body):
        return 'error', b'{"ename":"E","evalue":"e","traceback":' + body + b'}'

    def as_comm(body):
        return 'comm_open', b'{"comm_id":"c","target_name":"jupyter.widget","data":{"state":' + body + b'}}'

    def as_stream(body):
        return 'stream', b'{"name":"stdout","text":' + body + b'}'

    def as_event(body):
        return 'debug_event', b'{"event":"stopped","body":' + body + b'}'

    def as_unknown(body):
        return 'display_data', b'{"data":{},"metadata":{},"u":' + body + b'}'

    emoji = '\U0001f600'.encode()
    SHAPES = {
        'text': text(b'x'),
        'text in lines': text(b'x' * 40 + b'\\n'),
        'text with one emoji': text(b'x', emoji),
        'text with one euro': lambda size: text(b'x', '\u20ac'.encode())(size // 2),
        'text of emoji': text(emoji),
        'text of quotes': text(b'\\"'),
        'texts': tree(b'"' + b'x' * (1 << 23) + b'\\n",', b'""'),
        'text of escapes': text(b'\\u0000'),
        'text of colours': text(b'\\u001b[0m'),
        'text of escaped emoji': text(b'\\ud83d\\ude00'),
        'stream of titles': text(b'\\u001b]0;a\\u0007', b'', as_stream),
        'HTML of brackets': text(b'<', b'', shown(b'text/html')),
        'HTML of tags': text(b'<b>x</b>', b'', shown(b'text/html')),
        'HTML of scripts': text(b'<script>&</script>', b'', shown(b'text/html')),
        'HTML of styles': text(b'<style>a{color:red}</style>', b'', shown(b'text/html')),
        'Markdown': text(b'*a_ ', b'', shown(b'text/markdown')),
        'LaTeX': text(b'$x$', b'', shown(b'text/latex')),
        'SVG': text(b'<g>', b'', shown(b'image/svg+xml')),
        'PNG': lambda size: shown(b'image/png')(b'"iVBORw0KGgoAAAAN' + repeated(b'A', size) + b'"'),
        'display of empty objects': tree(b'{},', b'{}'),
        'display of empty lists': tree(b'[],', b'[]'),
        'display of numbers': tree(b'1234567,', b'1'),
        'display of short strings': tree(b'"ab",', b'""'),
        'display of poisonous keys': tree(b'{"a":1,"constructor":1},', b'1'),
        'display of digits': lambda size: shown(b'application/json')(repeated(b'1', size)),
        'display that is deep': lambda size: shown(b'application/json')(repeated(b'[', size // 2) + b']' * (size // 2)),
        'unknown key': tree(b'{},', b'1', as_unknown),
        'error of many lines': tree(b'"x",', b'"x"', as_error),
        'error of colours': text(b'\\u001b[0mx', b'', lambda body: as_error(b'[' + body + b']')),
        'widget of many keys': tree(b'{},', b'1', as_comm),
        'debug event': tree(b'{},', b'1', as_event),
        'reply with an unknown key': tree(b'{},', b'1', as_reply(b'u')),
        'reply with expressions': tree(b'{},', b'1', as_reply(b'user_expressions')),
        'reply with pages': tree(b'{"source":"page"},', b'1', as_reply(b'payload')),
        'reply with a long error': text(b'x', b'', lambda body: (
            'execute_reply', b'{"status":"error","ename":"E","evalue":' + body + b',"traceback":[]}')),
        'header': None, 'parent': None, 'metadata': None,
    }

    def send(shape, size):
        parent = json.dumps(kernel.get_parent()['header'], default=str).encode()
        kind, content = SHAPES[shape](size) if SHAPES[shape] else ('stream', b'{"name":"stdout","text":"x"}')
        header = json.dumps({'msg_id': 'forged', 'msg_type': kind}).encode()
        parts = [header, parent, b'{}', content]
        if SHAPES[shape] is None:
            place = ('header', 'parent', 'metadata').index(shape)
            parts[place] = (parts[place][:-1] + b',"u":[').replace(b'{,', b'{') + repeated(b'{},', size) + b'1]}'
        if not kind.endswith('_reply'):
            kernel.iopub_thread.send_multipart([b'kernel', b'<IDS|MSG>', b'', *parts])
            return
        shell = kernel.shell_channel_thread.manager.get_subshell_to_shell_channel_socket(None)
        ident = kernel._parent_ident['shell']
        shell.send_multipart([*(ident if isinstance(ident, list) else [ident]), b'<IDS|MSG>', b'', *parts])
""")
"""Code of a cell that defines `send`: a message of one shape and size, past the kernel's own encoder."""

_TABLE = RAW.split("SHAPES = {")[1].split("\n}")[0]
SHAPES = [*re.findall(r"^    '([\w ]+)':", _TABLE, re.MULTILINE), "parent", "metadata"]


def main(cells: int, shapes: Sequence[str]) -> int:
    """Print a row for each shape; returns 1 if one needed more than it may."""
    from .kernels import SANDBOX, Kernel, write_kernelspecs  # not needed for the list of shapes

    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel(SANDBOX, write_kernelspecs(Path(folder), ["--memory", "4G"]))
        try:
            worst = measure(kernel, cells, shapes)
        finally:
            kernel.stop()
    print(f"\nthe worst: {worst / MIB:.0f} MiB; three times message_limit: {3 * LIMIT / MIB:.0f} MiB")
    return int(worst > 3 * LIMIT + BESIDE)


def measure(kernel: Kernel, cells: int, shapes: Sequence[str]) -> int:
    """Print a row for each shape; return the most that one needed, in bytes."""
    assert kernel.manager.provisioner is not None
    pid, worst = int(kernel.manager.provisioner.pid), 0  # type: ignore[attr-defined]
    print(f"{'shape':28} {'highest':>10} {'slowest cell':>14}")
    kernel.run(RAW)
    before = size_of(pid, "VmRSS")  # once: what one shape leaves behind is counted with the next
    for shape in shapes:
        kernel.run(RAW)  # the kernel that was sent the shape before may have been replaced
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        slowest = max(kernel.run(f"send({shape!r}, {LIMIT - MIB})").seconds for _ in range(cells))
        highest = size_of(pid, "VmHWM") - before
        worst = max(worst, highest)
        print(f"{shape:28} {highest / MIB:6.0f} MiB {slowest:12.1f} s", flush=True)
    return worst


def size_of(pid: int, field: str) -> int:
    """Return a size of a process in bytes: VmRSS, or VmHWM, its highest since that was last cleared."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2:] or SHAPES))
