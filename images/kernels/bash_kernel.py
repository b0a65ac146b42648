"""Bash as a kernel: all cells of a session run in one bash.

Bash reads commands from a pipe that only the kernel writes to: for each cell a line that has it evaluate the cell's
text, and a line that has it write the exit code to a second pipe. A cell sees neither. So no prompt is searched for in
outputs, and a cell takes a millisecond. It is an interactive bash: an interrupt ends what it does, and leaves it.

Standard output and error are two terminals, so that programs write line by line, and in colours. The first is the
terminal of bash's session. A read of it is noticed when nothing else happens, and becomes a question to the front end.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import re
import signal
import stat
import termios
import time
from typing import Any

import kernel_base
from kernel_base import Content, Kernel

STATUS, INPUT, SHOW, SHOWN, ERRORS = 40, 41, 42, 43, 44
"""Descriptors in bash. Low numbers are for cells; bash itself takes those from 10 upwards and from 63 downwards."""
SPARE = 70
"""The first descriptor here that is none of these."""
ROWS, COLUMNS = 24, 80
PIECE = 1 << 16
"""Bytes of output in one message, about."""
GATHER_SECONDS = 0.01
"""From one message with output to the next: what comes meanwhile goes into one."""
FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.03, 0.5
"""How long a cell is silent before the kernel looks whether it waits for input: at first, and at most."""
REPEAT_SECONDS = 0.1
"""From an interrupt to the next look whether something missed it."""
MAX_REPEATS = 20
MAX_REPORTS = 5
"""How often a bash that waits for commands is asked for an exit code, before it is ended."""
YOUNG_SECONDS = 0.1
"""Of a command that may have been interrupted before it was more than a copy of bash, which forgets that."""
KILL_SECONDS = 1.0
"""An interrupt so long after the first one kills what the first did not end."""
QUERY_SECONDS = 2.0
MAX_ANSWER = 1 << 20
"""Bytes that are read of what bash says to the kernel."""
MAX_MATCHES = 500
MAX_SHOWN = 10 << 20
"""Bytes of a file that `display` shows."""

BINARY = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
TEXT = {
    ".svg": "image/svg+xml",
    ".html": "text/html",
    ".htm": "text/html",
    ".md": "text/markdown",
    ".tex": "text/latex",
    ".json": "application/json",
    ".txt": "text/plain",
}
ENVIRONMENT = {
    "TERM": "xterm-256color",
    "PAGER": "cat",  # a pager would wait for keys
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "VIRTUAL_ENV_DISABLE_PROMPT": "1",
}
SETUP = f"""
exec 2>&{ERRORS} {ERRORS}>&-
PS1= PS2=
unset PROMPT_COMMAND HISTFILE MAILCHECK
set +o history +o histexpand
display() {{
    local type= file said status=0
    if [[ ${{1-}} == -t ]]; then type=${{2-}}; shift 2; fi
    if (( $# == 0 )); then echo "usage: display [-t TYPE] FILE..." >&2; return 2; fi
    for file; do
        builtin printf '%s\\0%s\\0%s\\0' "$type" "$PWD" "$file" >&{SHOW}
        IFS= builtin read -r -d "" -u {SHOWN} said
        if [[ $said ]]; then echo "display: $file: $said" >&2; status=1; fi
    done
    return $status
}}
"""
READ_CALL = {"x86_64": "0", "aarch64": "63"}.get(os.uname().machine, "")
SEES_CALLS = bool(READ_CALL) and os.path.exists("/proc/self/syscall")
"""Whether the kernel can see that a program reads. gVisor does not show it."""
_WORD = re.compile(r"[^\s;|&()<>\"'`=:]*$")
_COMMAND = re.compile(r"(?:^|[;|&(`{\n!]|\b(?:then|do|else|if|elif|while|until|time|exec|command|xargs|sudo)\s)\s*$")
_SECRET = re.compile(r"pass(?:word|phrase|code)\b[^\n]*$", re.IGNORECASE)
_INCOMPLETE = ("unexpected end of file", "unexpected EOF", "delimited by end-of-file")


class Shell:
    """One bash: its process, and the kernel's ends of its descriptors."""

    def __init__(self) -> None:
        self.terminal, terminal = _terminal()
        self.errors, errors = _terminal()
        commands, self.commands = os.pipe()
        self.status, status = os.pipe()
        self.show, show = os.pipe()
        self.unread, self.shown = os.pipe()
        theirs = [terminal, errors, commands, status, show]
        high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, SPARE) for each in (*theirs[1:], self.unread)]
        targets = (ERRORS, 0, STATUS, SHOW, SHOWN)
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, INPUT, os.ttyname(terminal), os.O_RDWR, 0)]  # and it is bash's own
        actions += [(os.POSIX_SPAWN_DUP2, INPUT, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, one, other) for one, other in zip(high, targets, strict=True)]
        environment = {key: value for key, value in os.environ.items() if key != "JPY_PARENT_PID"} | ENVIRONMENT
        self.name, self.pipe = os.ttyname(terminal), os.readlink(f"/proc/self/fd/{commands}")
        try:
            self.pid = os.posix_spawnp(
                "bash",
                ["bash", "--noprofile", "--norc", "--noediting", "-i"],
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
            )
        finally:
            for each in (*theirs, *high):
                os.close(each)
        for each in (self.terminal, self.errors, self.commands, self.status, self.show):
            os.set_blocking(each, False)
        self.code: int | None = None
        """Its exit code, once it has ended."""

    def has_ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code
        return self.code is not None

    def foreground(self) -> int:
        """Return the group of processes that the terminal belongs to: a command, or bash itself."""
        try:
            return os.tcgetpgrp(self.terminal) or self.pid
        except OSError:
            return self.pid

    def signal(self, number: int) -> None:
        """Send a signal to what runs in the foreground. An interrupt is also for bash, which drops the rest."""
        if self.code is not None:
            return
        group = self.foreground()
        try:
            os.killpg(group, number)
            if group != self.pid and number == signal.SIGINT:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def processes(self, group: int) -> list[str]:
        """Return the processes of a group that are there."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[2]) == group:
                        found.append(pid)
            except (OSError, ValueError, IndexError):
                continue  # it has ended
        return found

    def is_young(self, group: int) -> bool:
        try:
            with open(f"/proc/{group}/stat", "rb") as file:
                started = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return False
        return time.clock_gettime(time.CLOCK_BOOTTIME) < started + YOUNG_SECONDS

    def reads(self) -> str:
        """Return what the foreground is in the midst of reading: "input", "commands", or "" for neither."""
        for pid in self.processes(self.foreground()):
            try:
                with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
                    call, argument = file.read().split()[:2]
                source = os.readlink(f"/proc/{pid}/fd/{int(argument, 16)}") if call == READ_CALL else ""
            except (OSError, ValueError):
                continue  # it has ended, or runs, or is another user's
            if source in {self.name, "/dev/tty"}:
                return "input"
            if source == self.pipe:
                return "commands"
        return ""

    def interrupt_again(self, before: int) -> int:
        """Interrupt what an interrupt of the group `before` missed; return the group in the foreground.

        Bash goes on where its command had just ended, or was about to start. And a command that still runs, and would
        have ended by the signal, has not got it.
        """
        group = self.foreground()
        if group not in {self.pid, before}:
            self.signal(signal.SIGINT)
            return group
        for pid in self.processes(group) if group != self.pid else ():
            try:
                with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                    masks = [
                        int(line.split()[1], 16) for line in file if line.startswith(("SigBlk", "SigIgn", "SigCgt"))
                    ]
                if len(masks) == 3 and not any(mask >> (signal.SIGINT - 1) & 1 for mask in masks):
                    os.kill(int(pid), signal.SIGINT)
            except (OSError, ValueError):
                continue
        return group

    def close(self) -> None:
        """End bash; what it left in the background loses its terminal."""
        for each in (self.terminal, self.errors, self.commands, self.status, self.show, self.shown, self.unread):
            os.close(each)
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class BashKernel(Kernel):
    """Cells in one bash, and another bash when that has ended."""

    implementation = "sandbox_bash"
    banner = "Bash"
    language_info = {  # noqa: RUF012 (a constant)
        "name": "bash",
        "version": "5",
        "mimetype": "text/x-sh",
        "file_extension": ".sh",
        "codemirror_mode": "shell",
        "pygments_lexer": "bash",
    }

    def __init__(self, connection_file: str) -> None:
        super().__init__(connection_file)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes the loop
        self.number = 0
        """Of what bash was last asked to do."""
        self.repeats = 0
        """How often it was asked for the exit code once more."""
        self.pending: list[tuple[str, str]] = []
        """What was taken and is not published yet: name and text."""
        self.size = self.heard = 0
        self.published_at = 0.0
        self.tail = ""
        """The last words that were published, among them what a command asks for."""
        self.home = os.getcwd()
        self.bash: Shell | None = None
        self.start_shell()

    # --- the shell ----------------------------------------------------------------------------------------------------

    def start_shell(self) -> Shell:
        shell = self.bash = Shell()
        self.said, self.asked = b"", b""
        self.decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}
        self.watch(shell.terminal, lambda: self.read_output(shell.terminal, "stdout"))
        self.watch(shell.errors, lambda: self.read_output(shell.errors, "stderr"))
        self.watch(shell.status, lambda: self.read_status(shell))
        self.watch(shell.show, lambda: self.read_shows(shell))
        self.feed(shell, f"\\builtin eval {quoted(SETUP)}\n")
        return shell

    def end_shell(self, shell: Shell) -> None:
        """Publish the last outputs of a bash, and forget it."""
        self.finish(shell)
        for each in {shell.terminal, shell.errors, shell.status, shell.show} & self.readers.keys():
            self.unwatch(each)
        shell.close()
        self.bash = None

    def feed(self, shell: Shell, text: str) -> None:
        """Write to the pipe that bash reads its commands from."""
        data = text.encode(errors="replace")
        while data and not shell.has_ended():
            try:
                data = data[os.write(shell.commands, data) :]
            except BlockingIOError:
                self.wait(seconds=0.002)
            except BrokenPipeError:
                return

    def do(self, shell: Shell, command: str) -> int:
        """Have bash do something and report; return the number by which its report is known."""
        self.number, self.said, self.repeats = self.number + 1, b"", 0
        self.feed(shell, f"\n{{ \\builtin printf '\\0+' >&{STATUS}; }} 2>/dev/null; {command}{self.report()}")
        return self.number

    def report(self) -> str:
        """Return the line for the exit code; `set -x` does not show it.

        An empty line comes first: after a syntax error, bash takes the next word for an argument.
        """
        return f"\n\n{{ \\builtin printf '\\0%d %d\\0' {self.number} $? >&{STATUS}; PS1=; }} 2>/dev/null\n"

    def reported(self) -> int | None:
        """Return the exit code of what bash was last asked to do, once it is done."""
        found = re.search(b"\0%d ([0-9]+)\0" % self.number, self.said)
        return int(found[1]) if found else None

    def has_started(self) -> bool:
        """Return whether bash has read its line: an interrupt would make it drop one half of it."""
        return b"\0+" in self.said

    def query(self, command: str) -> str:
        """Return what bash prints for a question of the kernel's own; what takes long is given up."""
        shell = self.living_shell()
        self.do(shell, f"{{ {command}; }} >&{STATUS} 2>/dev/null </dev/null")
        end = time.monotonic() + QUERY_SECONDS
        while self.reported() is None and not shell.has_ended():
            if time.monotonic() > end:
                shell.signal(signal.SIGINT)
                return ""
            self.wait(seconds=0.05)
        return self.said.partition(b"\0+")[2].partition(b"\0")[0].decode(errors="replace")

    def living_shell(self) -> Shell:
        """Return the shell, or a new one, and say so."""
        if self.bash is not None and self.bash.has_ended():
            code = self.bash.code
            self.end_shell(self.bash)
            self.publish(
                "stream", {"name": "stderr", "text": f"The shell had ended ({named(code)}). A new one starts.\n"}
            )
        return self.bash or self.start_shell()

    # --- a cell -------------------------------------------------------------------------------------------------------

    def execute(self, code: str, *, allow_stdin: bool) -> Content:
        if "\0" in code:
            return self.error("ValueError", "a cell of Bash cannot have a null character", "null character in the cell")
        shell = self.living_shell()
        source = f"<&{INPUT}" if allow_stdin and SEES_CALLS else "</dev/null"
        self.do(shell, f"\\builtin eval {quoted(code)} {source} {STATUS}>&- {INPUT}>&-")
        status = self.follow(shell, allow_stdin=allow_stdin)
        if status is None:
            self.end_shell(shell)
            text = f"the shell ended ({named(shell.code)}); the next cell has a new one, in {self.home}"
            return self.error("ShellEnded", text, f"ShellEnded: {text}")
        self.finish(shell)
        if status == 0:
            return {}
        if self.interrupts:
            return self.error("KeyboardInterrupt", "", "interrupted")
        return self.error("ExitCode", str(status), named(status))

    def follow(self, shell: Shell, *, allow_stdin: bool) -> int | None:
        """Publish what a cell writes until it is done; return its exit code, or None if the shell has ended."""
        look, interrupts, first_at, again_at, repeats, group = FIRST_LOOK_SECONDS, 0, 0.0, 0.0, 0, 0
        while (status := self.reported()) is None and not shell.has_ended():
            heard = self.heard
            self.wait(seconds=GATHER_SECONDS if self.pending else look)
            now = time.monotonic()
            if now >= self.published_at + GATHER_SECONDS:
                self.flush()
            if self.interrupts > interrupts and self.has_started():
                group, first_at, interrupts = shell.foreground(), first_at or now, self.interrupts
                shell.signal(signal.SIGKILL if now > first_at + KILL_SECONDS else signal.SIGINT)
                look, again_at, repeats = FIRST_LOOK_SECONDS, now + REPEAT_SECONDS, MAX_REPEATS
                self.repeats = 0
                if group != shell.pid and shell.is_young(group):
                    group = 0  # and all of it is interrupted again
            elif repeats and now >= again_at:
                group, again_at, repeats = shell.interrupt_again(group), now + REPEAT_SECONDS, repeats - 1
            elif self.pending or self.heard != heard:
                look = FIRST_LOOK_SECONDS
            else:
                look = self.look(shell, look, allow_stdin=allow_stdin)
        return status

    def look(self, shell: Shell, seconds: float, *, allow_stdin: bool) -> float:
        """See what a cell waits for that is silent; return the seconds until the next look."""
        reads = shell.reads()
        self.read_status(shell)  # what bash said just before it read on
        if self.reported() is not None:
            return seconds
        if reads == "input":
            self.give_input(shell, allow_stdin=allow_stdin)
        elif (reads == "commands" and self.has_started()) or not (SEES_CALLS or self.repeats):
            # A syntax error or an interrupt made bash drop the line that asks for the exit code, and another does no
            # harm. Some syntax errors leave its parser within a construct, which an interrupt ends. A bash that still
            # says nothing lacks what the line needs.
            if self.repeats and reads:
                shell.signal(signal.SIGINT if self.repeats < MAX_REPORTS else signal.SIGKILL)
            self.repeats += 1
            self.feed(shell, self.report())
        return FIRST_LOOK_SECONDS if reads else min(2 * seconds, MAX_LOOK_SECONDS)

    def give_input(self, shell: Shell, *, allow_stdin: bool) -> None:
        """Type a line of the front end's, or the end of the input if there is none."""
        self.read_all(shell)
        self.flush()
        line = self.ask(hidden=bool(_SECRET.search(self.tail))) if allow_stdin else None
        if line is None and allow_stdin and self.interrupts:
            return
        data = b"\x04" if line is None or line == "\x04" else f"{line}\n".encode(errors="replace")
        while data and not shell.has_ended() and not self.interrupts:
            try:
                data = data[os.write(shell.terminal, data) :]
            except BlockingIOError:
                self.wait(seconds=0.01)
            except OSError:
                return

    # --- outputs ------------------------------------------------------------------------------------------------------

    def read_output(self, source: int, name: str) -> bool:
        """Take what a terminal has, as far as it fits into one message; return whether it had something."""
        taken = 0
        while self.size < PIECE:
            try:
                data = os.read(source, PIECE)
            except BlockingIOError:
                break
            except OSError:  # nobody is left who could write
                if source in self.readers:
                    self.unwatch(source)
                break
            taken += len(data)
            self.size += len(data)
            self.pending.append((name, self.decoders[name].decode(data)))
        self.heard += taken
        if self.size >= PIECE or not self.running:
            self.flush()
        return taken > 0

    def read_all(self, shell: Shell) -> None:
        """Take all that was written until now: a terminal hands over at once what is on its way."""
        for source, name in ((shell.terminal, "stdout"), (shell.errors, "stderr")):
            while self.read_output(source, name):
                pass

    def finish(self, shell: Shell) -> None:
        """Publish what is left of a cell, half characters too."""
        self.read_all(shell)
        self.pending += [(name, decoder.decode(b"", final=True)) for name, decoder in self.decoders.items()]
        self.flush()

    def flush(self) -> None:
        """Publish what has been taken, in its order."""
        pending, self.pending, self.size = self.pending, [], 0
        self.published_at = time.monotonic()
        while pending:
            name = pending[0][0]
            count = next((n for n, (other, _) in enumerate(pending) if other != name), len(pending))
            text = "".join(text for _, text in pending[:count])
            pending = pending[count:]
            if text:
                self.tail = text[-200:]
                self.publish("stream", {"name": name, "text": text})

    def read_status(self, shell: Shell) -> None:
        try:
            self.said = (self.said + os.read(shell.status, PIECE))[-MAX_ANSWER:]
            self.heard += 1
        except BlockingIOError:
            pass

    def read_shows(self, shell: Shell) -> None:
        """Show the files that `display` names, each in its place between the outputs, and say what is wrong."""
        try:
            self.asked += os.read(shell.show, PIECE)
        except BlockingIOError:
            return
        while self.asked.count(b"\0") >= 3:
            kind, folder, name, self.asked = self.asked.split(b"\0", 3)
            self.read_all(shell)
            self.flush()
            try:
                data, said = shown(os.path.join(folder, name), kind.decode(errors="replace")), ""
                self.publish("display_data", {"data": data, "metadata": {}, "transient": {}})
            except OSError as error:
                said = error.strerror or str(error)
            except ValueError as error:
                said = str(error)
            with open(f"/proc/self/fd/{shell.unread}", "rb", buffering=0, opener=_at_once) as answers:
                answers.read(PIECE)  # one that an interrupt kept from being read
            os.write(shell.shown, said.encode(errors="replace")[:1000] + b"\0")

    # --- questions ----------------------------------------------------------------------------------------------------

    def complete(self, code: str, cursor: int) -> Content:
        before = code[:cursor]
        found = _WORD.search(before)
        word = found[0] if found else ""
        head = before[: cursor - len(word)]
        if word.startswith("$"):
            kind, prefix, word = "-v", word[: 2 if word.startswith("${") else 1], word.lstrip("${")
        else:
            kind, prefix = ("-c" if _COMMAND.search(head) and "/" not in word else "-f"), ""
        names = self.query(f"compgen {kind} -- {quoted(word)}").split("\n")
        matches = sorted({prefix + name for name in names if name})[:MAX_MATCHES]
        if kind == "-f":
            base = self.query("pwd").rstrip("\n")
            matches = [
                f"{one}/" if os.path.isdir(os.path.join(base, os.path.expanduser(one))) else one for one in matches
            ]
        return {"matches": matches, "cursor_start": cursor - len(prefix + word), "cursor_end": cursor, "metadata": {}}

    def inspect(self, code: str, cursor: int) -> Content:
        start, end = _WORD.search(code[:cursor]), re.match(r"[\w.+/-]*", code[cursor:])
        word = (start[0] if start else "") + (end[0] if end else "")
        text = ""
        if name := word.lstrip("$"):
            if word.startswith("$"):
                text = self.query(f"declare -p -- {quoted(name)}")
            else:
                text = self.query(f"type -- {quoted(name)}; help -- {quoted(name)}")
        return {"found": bool(text), "data": {"text/plain": text.rstrip("\n")} if text else {}, "metadata": {}}

    def is_complete(self, code: str) -> Content:
        import subprocess  # only a console asks

        command = ["bash", "--norc", "-O", "extglob", "-n"]
        result = subprocess.run(command, input=code.encode(errors="replace"), capture_output=True, check=False)
        said = result.stderr.decode(errors="replace")
        if any(words in said for words in _INCOMPLETE) or re.search(r"(?<!\\)(?:\\\\)*\\\n?$", code):
            return {"status": "incomplete", "indent": ""}
        return {"status": "invalid" if result.returncode else "complete"}

    def close(self) -> None:
        if self.bash is not None:
            self.bash.signal(signal.SIGHUP)
            self.bash.close()


def shown(path: bytes, kind: str) -> Content:
    """Return a file as what front ends show. Raises OSError and ValueError."""
    ending = os.path.splitext(path)[1].decode(errors="replace").lower()
    kind = kind or BINARY.get(ending) or TEXT.get(ending, "")
    if kind not in {*BINARY.values(), *TEXT.values()}:
        known = " ".join((*BINARY, *TEXT))
        raise ValueError(f"{kind or ending or 'a file without an extension'} cannot be shown; what can is {known}")
    with open(path, "rb", opener=_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(MAX_SHOWN + 1)
    if len(data) > MAX_SHOWN:
        raise ValueError(f"it has more than {MAX_SHOWN >> 20} MiB")
    if kind in BINARY.values():
        import base64

        return {kind: base64.b64encode(data).decode()}
    text = data.decode(errors="replace")
    return {kind: json.loads(text) if kind == "application/json" else text}


def quoted(text: str) -> str:
    """Return a text as one word of one line of Bash."""
    for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return f"$'{text}'"


def named(code: int | None) -> str:
    """Return an exit code with the signal that it stands for."""
    try:
        return f"exit code {code}, {signal.Signals((code or 0) - 128).name}"
    except ValueError:
        return f"exit code {code}"


def _at_once(path: str, flags: int) -> int:
    """Open a file without a wait for another end, which a named pipe may lack."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _terminal() -> tuple[int, int]:
    """Return both ends of a terminal that passes on each byte as it was written, and repeats no input."""
    ours, theirs = os.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST
    mode[3] &= ~(termios.ECHO | termios.ECHONL | termios.ECHOCTL)
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    return ours, theirs


def main() -> None:
    kernel_base.run(BashKernel)


if __name__ == "__main__":
    main()
