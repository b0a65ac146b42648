"""One sandbox that several kernels of a user share: each notebook has a kernel and variables of its own in it.

The engine `shared`. A process of the user's owns the sandbox while a kernel is in it: a broker whose sandboxes are
further agents of that (`contexts.nested_agents`).

- `plugin`: What this plugin adds.
- `codes`: Why a kernel cannot join.
- `place`: Which sandbox is meant by a name: where its owner listens, and what it is made of.
- `engine`: Joins the sandbox, after starting its owner where there is none.
- `container`: One kernel in it, at both ends of its pipe.
- `owner`: The process that owns it.
"""
