"""What a sandbox without images has for its file system: a root, which is a folder under a name, and how it is read.

A root of the name N lies in the first of these folders that there is (`folders`), and a name that begins with "/" is
the folder itself; a "/" within a name is written "%2F":

    $XDG_DATA_HOME/sandbox-kernel/roots/N/      (~/.local/share where the variable is not set)
    /usr/local/share/sandbox-kernel/roots/N/
    /usr/share/sandbox-kernel/roots/N/

In it lie `root.json`, and whatever that names:

    {
      "format": 1,
      "contents": "sha256:…",     a digest of what went into it, which is what the attestation and receipts call the image
      "made": "2026-01-31",
      "size_bytes": 123456789,    of what lies in the folder
      "tree": "root",             optional: a folder beside root.json whose entries are those of "/"
      "binds": [["/usr", "/usr"], ["env", "/usr/local"]],
      "links": [["usr/bin", "/bin"], ["usr/lib", "/lib"]],
      "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    }

- `tree` is a file system as an image has it (`docker export`). Its entries are bound one by one, so it needs no folder
  for what is put beside them; those of `OURS` are left out, for a sandbox has its own.
- `binds` are pairs of a source and a place inside, in this order, after the tree: a later one may lie within an earlier
  one, where that has such a folder. A relative source lies in the root's own folder and may not leave it; an absolute
  one is this machine's (/usr, a Python's prefix, /etc/ld.so.cache), and is refused if it is, or holds, what is nobody's
  business inside (`PRIVATE`). All are read-only, and without setuid files and device nodes.
- `links` are symbolic links: what they point to, and where they lie.
- `environment` is what an image would bring: the variables of the agent's process, of which `ENVIRONMENT` may be there.

Wanted inside: `python3` on that PATH, with ipykernel and pyzmq; the home that is copied for each session, if there is
one, in /opt/sandbox/home; `sh` in /bin. All of it must be readable by every user. /etc is the tree's, or empty, and gets
`passwd`, `group`, `hosts`, `hostname`, `nsswitch.conf` and `resolv.conf` of the sandbox's own in any case.

Only the owner of the root's folder and of root.json may be able to write there, and that is this process's user or root.
Imports errors; reads files, and nothing else.
"""
