"""What this plugin adds: the command `serve`, and its codes."""

from __future__ import annotations

from ..api import Command, Plugin
from . import command, dashboard_command
from .codes import ServeCode

PLUGIN = Plugin(
    name="serve",
    page="docs/serve.md",
    extra="serve",
    codes={"Server": ServeCode},
    commands=(
        Command(
            name="serve",
            run=command.serve,
            add_options=command.add_options,
            group="Running code without a front end",
            examples={
                "sandbox-kernel serve": "for clients of E2B on this machine; prints the variables to set",
                "sandbox-kernel serve --memory 1G --template big=sandbox-kernel:all": "another image, by a name",
            },
        ),
        Command(
            name="dashboard",
            run=dashboard_command.dashboard,
            add_options=dashboard_command.add_options,
            group="Checking and maintaining",
            examples={
                "sandbox-kernel dashboard": "a page with all sandboxes that this user may see; prints its address",
                "sandbox-kernel dashboard --engine broker": "with the users of a broker, and what it has ready",
            },
        ),
    ),
)
