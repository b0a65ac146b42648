"""Code mode: tools of frameworks that a model's code calls in a sandbox, and that run here, with a scripted model."""

from __future__ import annotations

import os

from sandbox_kernel import Sandbox, Tools
from tests.plugins.frameworks.container.test_smolagents import scripted

PRICES = {"lamp": 3, "chair": 20}
HERE: list[int] = []
"""The processes in which tools ran."""


def test_smolagents() -> None:
    from smolagents import CodeAgent, LogLevel, Tool

    from sandbox_kernel.plugins.frameworks.smolagents import SandboxExecutor

    class Price(Tool):
        name = "price"
        description = "The price of a thing."
        inputs = {"thing": {"type": "string", "description": "which"}}  # noqa: RUF012 (as the framework has it)
        output_type = "integer"

        def forward(self, thing: str) -> int:
            HERE.append(os.getpid())
            return PRICES[thing]

    price = Price()
    steps = (
        "try: price(3)\nexcept Exception as error: print(type(error).__name__, error)",
        "final_answer(sum(price(thing) for thing in ('lamp', 'chair')))",
    )
    HERE.clear()
    with SandboxExecutor(host_tools=[price], memory="512M") as executor:
        model = scripted(*steps)
        agent = CodeAgent(tools=[price], model=model, executor=executor, verbosity_level=LogLevel.OFF)
        assert agent.run("What do they cost?") == 23
        assert "the arguments of the tool price do not fit" in model.told
    assert [os.getpid()] * 2 == HERE


def test_an_mcp_server() -> None:
    from mcp.server import MCPServer

    from sandbox_kernel.plugins.frameworks.mcp_tools import McpTools

    server = MCPServer("shop")

    @server.tool(name="get-price")
    def get_price(thing: str, number: int = 1) -> int:
        """Return the price of a thing."""
        return PRICES[thing] * number

    @server.tool()
    def other() -> str:
        """Do something else."""
        return "else"

    code = (
        "from sandbox_tools import *\n"
        "print(get_price('lamp', number=2), get_price.__doc__)\n"
        "for wrong in ({'thing': 'sofa'}, {'thing': 3}, {'thing': 'lamp', 'more': 1}):\n"
        "    try: get_price(**wrong)\n"
        "    except (ToolError, TypeError) as error: print(getattr(error, 'code', 'type'))\n"
        "print('other' in globals())"
    )
    with McpTools(server, only=("get-price",)) as tools, Sandbox(memory="512M", tools=tools) as sandbox:
        assert Tools.given(tools).names == ("get_price",)
        said = "".join(sandbox.run_code(code).logs.stdout)
    assert said == "6 Return the price of a thing.\ntool-failed\ntool-arguments-wrong\ntype\nFalse\n"
    tools.close()
