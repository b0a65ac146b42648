"""One sandbox that several kernels of a user share: each notebook has a kernel and variables of its own in it.

The engine `shared`. A process of the user's owns the sandbox while a kernel is in it; each kernel is a further agent of
that (`session.nested_agents`), whose pipe goes through a socket of that process.

- `plugin`: What this plugin adds.
- `codes`: Why a kernel cannot join.
- `meeting_point`: Where the owner of a shared sandbox listens, and what both say there.
- `engine`: Joins the sandbox, after starting its owner where there is none.
- `container`: The pipe of one kernel in it.
- `owner`: The process that owns it.
"""
