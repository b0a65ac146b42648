"""Further agents of one sandbox: each has a kernel of its own, and its pipe to the host goes through this agent's.

Such an agent is a copy of process 1, made without a start of Python. It collects the processes that its kernel leaves
behind, so each kernel can be ended with all of its processes and nothing else. Its own cells cannot end or stop it;
those of another kernel may, as they may a kernel: the sandbox is the wall, and there is none between the kernels in it.
Both ends of a pipe give each other credit (`flow`): what one holds for the other has a bound, and a kernel that floods
takes no other's turn.
Runs inside the container, where the host ships its source when it is wanted: standard library only, Python 3.9 and
later.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any
if TYPE_CHECKING or __package__ != "container":  # which it is in a sandbox
    from ....container import flow, kernelspecs, process, syscall_filters, wire
    from ....container.agent import MAX_PENDING, STDIN, STDOUT, Agent
else:
    from . import flow, kernelspecs, process, syscall_filters, wire
    from .agent import MAX_PENDING, STDIN, STDOUT, Agent

READ = 1 << 16
SCRATCH = "/mnt/data"
PR_SET_CHILD_SUBREAPER = 36
MAX_ROUNDS = 100
"""How often processes are looked for that another one began meanwhile."""


class FolderError(OSError):
    """A kernel cannot begin in a folder."""


class NestedAgent(Agent):
    """One of them, in the process that is its own. It is silent until its host is there, as after a restart of that."""

    def begin_nested(self, wake_read: int) -> None:
        self.parked = True
        self.poller.register(STDIN, select.POLLIN)
        self.poller.register(wake_read, select.POLLIN)
        if "missing" in self.config:
            self.event("no_kernelspec", **self.config["missing"])
        else:
            self.attach(self.spawn())

    def spawn(self) -> Any:
        if "missing" in self.config:
            raise AssertionError("there is no kernel to start")
        if not os.path.isdir(self.config["scratch"]):  # a cell has removed it
            self.config["scratch"] = SCRATCH
        return super().spawn()

    def stop_kernel(self) -> None:
        """Kill the processes of this agent's kernel, those included that it has left."""
        me = os.getpid()
        spared = set if self.nested is None else self.nested.spared
        end_all(lambda: below(me) - spared())


class Child:
    """One of them, as process 1 sees it: its process, and the two pipes to it."""

    def __init__(self, number: int, pid: int, stdin: int, stdout: int) -> None:
        self.number = number
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.credit = flow.Credit(flow.WINDOW)
        self.out: collections.deque[memoryview] = collections.deque()
        self.polled: dict[int, int] = {}
        self.closed = False
        """Whether the host wants nothing of it any more."""


class NestedAgents:
    """All of them, in the loop of process 1."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.children: dict[int, Child] = {}

    # --- commands of the host ---

    def command(self, op: str, request: dict[str, Any]) -> dict[str, Any]:
        if op == "nested.kernelspecs":
            return {"ok": True, "kernelspecs": kernelspecs.described()}
        if op == "nested.open":
            try:
                self.open(int(request["number"]), request["config"])
            except FolderError as error:
                return self.refused(request, "folder", error)
            except OSError as error:
                return self.refused(request, "not_started", error)
            return {"ok": True}
        if op == "nested.close":
            child = self.children.get(int(request["number"]))
            if child is None:
                return {"ok": True}
            child.closed = True
            return {"ok": end_all(lambda: {child.pid} | below(child.pid))}
        return {"ok": False, "error": "unknown", "message": "the agent knows no " + op}

    def refused(self, request: dict[str, Any], error: str, why: OSError) -> dict[str, Any]:
        """Return why one was not started; its end is told, too, for a host that does not wait for the answer."""
        self.agent.send(wire.NESTED, flow.frame(flow.END, int(request["number"])))
        return {"ok": False, "error": error, "message": why.strerror or str(why)}

    def open(self, number: int, config: dict[str, Any]) -> None:
        """Start one. Raises `FolderError` if no kernel can begin there, OSError if the system has no room for it."""
        folder = config["scratch"]
        if not os.path.exists("/proc/self"):
            raise OSError(errno.ENOSYS, "this sandbox has no /proc of its own, by which a kernel's processes are ended")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise FolderError(error.errno, error.strerror) from None
        if not os.access(folder, os.X_OK):
            raise FolderError(errno.EACCES, os.strerror(errno.EACCES))
        pipes = [os.pipe() for _ in range(2)]
        try:
            pid = os.fork()
        except OSError:
            for fd in (*pipes[0], *pipes[1]):
                os.close(fd)
            raise
        if pid == 0:
            become(config, pipes[0][0], pipes[1][1])
        os.close(pipes[0][0])
        os.close(pipes[1][1])
        for fd in (pipes[0][1], pipes[1][0]):
            os.set_blocking(fd, False)
        self.children[number] = Child(number, pid, pipes[0][1], pipes[1][0])
        if self.agent.watch is not None:
            self.agent.watch.agents.add(pid)

    # --- what comes and goes ---

    def take(self, parts: Sequence[bytes]) -> None:
        """Act on a frame of the host's."""
        op, number, amount, data = flow.parse(parts)
        child = self.children.get(number)
        if child is None:
            return  # it has ended meanwhile
        if op == flow.CREDIT:
            child.credit.given(amount)
        elif op == flow.DATA:
            child.credit.came(len(data))
            child.out.append(memoryview(data))
            self.write(child)

    def turn(self, ready: dict[int, int]) -> None:
        """Move what can be moved, after each wait of the loop."""
        for child in list(self.children.values()):
            if child.stdin in ready:
                self.write(child)
            if child.stdout in ready and self.may_read(child):
                self.read(child)
            self.watch(child)

    def may_read(self, child: Child) -> bool:
        return child.closed or (child.credit.may_send > 0 and self.agent.pending_bytes <= MAX_PENDING)

    def read(self, child: Child) -> None:
        try:
            data = os.read(child.stdout, READ if child.closed else min(READ, child.credit.may_send))
        except BlockingIOError:
            return
        if data and child.closed:
            pass  # the host reads nothing of it, and gives no credit
        elif data:
            child.credit.spend(len(data))
            self.agent.send(wire.NESTED, flow.data_frame(child.number, data))
        else:
            self.end(child)

    def write(self, child: Child) -> None:
        written = 0
        try:
            while child.out:
                count = os.write(child.stdin, child.out[0])
                written += count
                if count == len(child.out[0]):
                    child.out.popleft()
                else:
                    child.out[0] = child.out[0][count:]
        except BlockingIOError:
            pass
        except OSError:  # it is gone; its end comes from its other pipe
            child.out.clear()
        credit = child.credit.release(written)
        if credit:
            self.agent.send(wire.NESTED, flow.frame(flow.CREDIT, child.number, credit))

    def watch(self, child: Child) -> None:
        """Ask for what can be acted on, and nothing else: an end of the other side is always reported."""
        if child.number not in self.children:
            return
        wanted = {
            child.stdin: select.POLLOUT if child.out else 0,
            child.stdout: select.POLLIN if self.may_read(child) else 0,
        }
        for fd, mask in wanted.items():
            if mask != child.polled.get(fd, 0):
                if mask:
                    self.agent.poller.register(fd, mask)
                else:
                    self.agent.poller.unregister(fd)
                child.polled[fd] = mask

    def end(self, child: Child) -> None:
        """Forget one whose pipe has ended, and say so."""
        self.forget(child)
        self.agent.send(wire.NESTED, flow.frame(flow.END, child.number))

    def forget(self, child: Child) -> None:
        del self.children[child.number]
        if self.agent.watch is not None:
            self.agent.watch.agents.discard(child.pid)
        for fd in (child.stdin, child.stdout):
            if child.polled.get(fd):
                self.agent.poller.unregister(fd)
            os.close(fd)

    def end_all(self) -> None:
        """End all of them without a word: the host that had them is gone."""
        end_all(self.spared)
        for child in list(self.children.values()):
            self.forget(child)

    def stop_others(self) -> None:
        """Kill every process that is none of theirs, nor this one."""
        me = os.getpid()
        end_all(lambda: set(parents()) - {me} - self.spared())

    def spared(self) -> set[int]:
        """Return their processes, and those of their kernels."""
        return {pid for child in self.children.values() for pid in (child.pid, *below(child.pid))}


def install(agent: Agent) -> None:
    """Have process 1 take further agents."""
    agent.nested = NestedAgents(agent)


def become(config: dict[str, Any], stdin: int, stdout: int) -> None:
    """Be one of them from now on, in a process that was copied for it. Does not return."""
    try:
        os.dup2(stdin, STDIN)
        os.dup2(stdout, STDOUT)
        os.closerange(3, 1 + max(map(int, os.listdir("/proc/self/fd"))))
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.setsid()  # what is sent to a group of processes is not sent to this one
        wake_read = process.prepare_pipes(STDIN, STDOUT)
        give_back_memory = process.settle()
        syscall_filters.protect(os.getpid())
        if "kernelspec" in config:
            kernelspecs.choose(config)
        agent = NestedAgent(config, None)
        agent.begin_nested(wake_read)
        agent.run(wake_read, give_back_memory)
    except BaseException as error:
        sys.stderr.write("an agent of the sandbox failed: %r\n" % (error,))
    finally:
        os._exit(1)


def parents() -> dict[int, int]:
    """Return the processes that run, each with its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):  # it has ended
                continue
            if state not in (b"Z", b"X"):
                found[int(name)] = int(parent)
    return found


def below(pid: int) -> set[int]:
    """Return the processes that a process began, and those that these began."""
    children: dict[int, list[int]] = {}
    for each, parent in parents().items():
        children.setdefault(parent, []).append(each)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def end_all(find: Callable[[], set[int]]) -> bool:
    """Kill the processes that are found, and those that they begin meanwhile; return whether none is left.

    They are stopped first, so that none begins another one unseen.
    """
    stopped: set[int] = set()
    for _ in range(MAX_ROUNDS):
        new = find() - stopped
        if not new:
            break
        for pid in new:
            send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        send(pid, signal.SIGKILL)
    return not find() - stopped


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended
