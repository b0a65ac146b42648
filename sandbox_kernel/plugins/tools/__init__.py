"""Tools: functions of whoever runs a sandbox, which its cells call. Nothing of this is imported without one.

What runs in the kernel is the package `inside`.

- `plugin`: What this plugin adds.
- `codes`: How the call of a tool ended.
- `tool_types`: Types of a signature, and whether JSON is of them.
- `tools`: What a caller lets its cells call, and within which limits.
- `tool_calls`: The calls of one session's tools.
"""
