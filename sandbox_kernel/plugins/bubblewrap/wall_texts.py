"""What bubblewrap's walls stop, need, cost and enforce: texts and nothing else."""

from __future__ import annotations

from ...engines.wall import Wall, WallCell

_ALWAYS = {
    "user": WallCell(
        "partly",
        "if root starts it, or a user with subordinate ids; otherwise the user's own, with another id inside: "
        "sandboxes share counts of pipes, watches of epoll and descriptors in flight",
    ),
    "inodes": WallCell(
        "partly",
        "with bubblewrap 0.11 and Linux 5.11, except for locks on device nodes and read-only paths of /proc; what "
        "shows who opens a file is filtered in any case",
    ),
    "kernel": WallCell("no"),
    "ends": WallCell("yes", "by its reaper"),
}
WALL = Wall(
    name="bubblewrap",
    settings="engine = bubblewrap",
    engine="bubblewrap",
    for_whom="users without Docker or root who can create a cgroup; busy machines where you are root",
    kernel="the machine's kernel, behind the same filter as with runc, without inotify",
    stops="the same as runc; files in memory count as memory",
    leaves="the same as runc, and faults in user namespaces, which ordinary users can create here; for an ordinary "
    "user, some counts of the machine's kernel that all of the user's sandboxes share",
    needs="Linux with user namespaces for ordinary users, and a writable cgroup; no daemon and no image",
    costs="the least of all: there is no daemon, and a sandbox ends at once",
    enforces={
        **_ALWAYS,
        "sys": WallCell("yes", "except for its own cgroup"),
        "files-number": WallCell("no", "they count as memory"),
    },
)
BEST_EFFORT = Wall(
    name="bubblewrap, limits as far as they go",
    settings="engine = bubblewrap, limits = best-effort",
    engine="bubblewrap",
    for_whom="users without a cgroup, on their own machine; code without bad intent",
    kernel="as above",
    stops="files, network, processes, rights",
    leaves="cells that use up memory faster than it is checked, or in places that are not checked (sockets, "
    "files without a name); cells that use all processors",
    needs="Linux with user namespaces for ordinary users",
    costs="as above",
    enforces={
        **_ALWAYS,
        "files-number": WallCell("no"),
        "memory": WallCell(
            "no", "checked twenty times a second; fast growth is noticed late, sockets and files without a name never"
        ),
        "threads": WallCell("partly", "on Linux 5.14 or newer, if a limit can be set; otherwise checked like memory"),
        "processors": WallCell("no"),
    },
)
