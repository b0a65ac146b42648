"""E2B's wire: sandboxes that clients make and end, and what they do in them.

- `wire`: Its routes, and how it finds the sandbox that a request is for.
- `bodies`: The bodies of its requests.
- `control`: Outside of a sandbox: made, found, listed, paused, ended.
- `snapshots`: Outside of a sandbox: sandboxes that are written down, and copies of them.
- `cells`: In a sandbox: cells, whose output is streamed, and contexts.
- `metadata`: What E2B's clients note of files that they send.
- `files`: In a sandbox: files that come and go.
- `rpc`: The protocol of calls that are no paths of their own.
- `folders`: In a sandbox: folders and their entries.
- `processes`: In a sandbox: commands and shells.
"""
