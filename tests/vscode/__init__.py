"""Our extension in a real VS Code: `make test-vscode`."""
