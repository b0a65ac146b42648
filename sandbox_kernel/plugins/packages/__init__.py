"""Packages into a sandbox that runs: for its caller, and for its cells where a setting allows it.

What runs in the kernel is the package `inside`. Needs the plugin `tools`: cells ask for packages as they call a tool.

- `plugin`: What this plugin adds.
- `settings`: How packages that cells may install are written.
- `codes`: Why packages cannot come.
- `installation`: The wheels, and their way into one session, for its cells, and for its caller (`install`).
"""
