"""LibreChat's wire: its code interpreter.

- `wire`: Its routes.
- `bodies`: The bodies of its requests.
- `cells`: Code in a sandbox, the files that it is given, and those that it makes.
- `files`: Files that are kept between requests.
- `programs`: Programs that call the tools of LibreChat's agent.
"""
