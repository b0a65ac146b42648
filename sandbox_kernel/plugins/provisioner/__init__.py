"""A provisioner for Jupyter: it starts any kernelspec of a machine as a kernel in a sandbox.

- `provisioner`: What jupyter_client asks for in place of its own, which starts the command of the kernelspec.
- `forked_process`: Kernel processes from a fork server of the process that asks, as `subprocess.Popen` has them.
- `fork_server`: A process that has loaded what kernels load, and forks itself into each of them.
- `plugin`: What this plugin adds: an entry point for jupyter_client, and no command.
"""
