"""What a model is told of its network: what it reaches, and what was denied."""

from __future__ import annotations

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.mcp import tool_descriptions
from sandbox_kernel.plugins.mcp.answer_writer import figures
from sandbox_kernel.sdk.execution import Execution
from sandbox_kernel.sdk.values import NetworkDenial

RULES = ("api.example.org", "*.data.example.org")
SECRET = {"API_KEY": {"env": "A_VARIABLE_OF_MINE", "hosts": ["api.example.org"]}}


def test_a_model_is_told_what_it_can_reach() -> None:
    from sandbox_kernel.plugins.mcp.clients import ServerLimits

    nothing, some = Settings(), resolve({"network": RULES, "secrets": SECRET})
    assert "- No network: nothing can be downloaded" in tool_descriptions.run_code(nothing, ServerLimits())
    said = tool_descriptions.run_code(some, ServerLimits())
    assert "- Network: api.example.org, *.data.example.org, and nothing else" in said
    assert "placeholders in API_KEY" in said
    assert "A_VARIABLE_OF_MINE" not in said
    assert "that reach nothing but api.example.org" in tool_descriptions.instructions(some, ServerLimits())


def test_the_figures_of_an_mcp_answer_have_what_was_denied() -> None:
    denial = NetworkDenial(code="host-not-allowed", reason="no", host="a.test", port=443)
    assert figures(Execution(denied=[denial]), "main")["denied"] == [
        {"code": "host-not-allowed", "reason": "no", "host": "a.test", "port": 443}
    ]
    assert "denied" not in figures(Execution(), "main")
    assert Execution(denied=[denial]).to_json()["denied"][0]["code"] == "host-not-allowed"
