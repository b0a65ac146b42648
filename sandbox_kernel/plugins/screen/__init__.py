"""The command `sandbox-kernel screen`: what the screen of sessions finds in files, of which nothing is run.

- `plugin`: What this plugin adds.
- `command`: The command: reads notebooks and scripts, and prints what is found for people, as JSON, and as SARIF.
- `sarif`: Findings of files in SARIF 2.1.0, the form that code hosts show beside a change.
"""
