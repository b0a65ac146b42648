"""What is checked, a folder for what it needs; helpers of several folders lie in `support`.

- `hub`: two people on a real JupyterHub, with users of the system of its own; `make hub` runs it.
- `languages`: kernels of other languages, in images of their own; `make test-languages` runs it.
- `vscode`: our extension in a real VS Code, which is large; `make test-vscode` runs it.
- `unit`: this process and programs that it starts; neither an engine nor a browser. `make test-unit` runs them.
  Its folders are those of the package: `unit/core/test_tasks.py` is about `sandbox_kernel/core/tasks.py`.
- `container`: an engine, and sandboxes in it.
- `attacks`: hostile cells, agents, users and floods against real sandboxes; and what the fuzzers find.
- `browser`: hostile and honest outputs in Chromium, and the second wall before them.
- `plugins`: the parts that can be left out, a folder each, with a folder for what their tests need.
- `frameworks`: the suites that others wrote for kernels and servers, and what keeps frameworks from other machines.
"""
