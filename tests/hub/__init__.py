"""A real JupyterHub for two system users, and the operator's broker beside it: `make hub`."""
