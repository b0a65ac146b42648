"""Door 3: sandboxes for hosts that speak the Model Context Protocol. Imports nothing, so that it costs nothing.

The package `mcp` and its web server are an extra; what needs them is imported when the command runs.
"""
