"""A program that evaluates a task with inspect_ai and prints what came of it: the framework changes its whole process.

Its argument is JSON: the `steps` of the model (text, or a tool's name and arguments), and the `settings` file of a task
that names its sandbox; without one, the example of the document is run. The folder for logs is the current one.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.frameworks import offline
from tests.plugins.frameworks.container.documents import run_example

os.environ |= {"INSPECT_DISPLAY": "none", "INSPECT_LOG_DIR": os.getcwd(), "XDG_DATA_HOME": os.getcwd()}  # noqa: PTH109


def scripted(steps: list[Any]) -> Any:
    """Return the framework's own mock, which calls tools and then answers.

    Each step says how many tokens it took: else the mock would fetch a tokeniser to count them.
    """
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    outputs = [
        ModelOutput.from_content("mockllm", step)
        if isinstance(step, str)
        else ModelOutput.for_tool_call("mockllm", step[0], step[1])
        for step in steps
    ]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return get_model("mockllm/model", custom_outputs=outputs)


def by_name(settings: str, model: Any) -> Any:
    """Evaluate a task as `inspect eval --sandbox sandbox_kernel:settings.json` does, with a setup script."""
    from inspect_ai import Task, eval  # noqa: A004 (the framework calls it so)
    from inspect_ai.dataset import Sample
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import bash

    sample = Sample(input="?", setup="#!/bin/bash\necho $((6 * 7)) > /tmp/made")
    task = Task(dataset=[sample], solver=[use_tools(bash()), generate()], sandbox=("sandbox_kernel", settings))
    return eval(task, model=model)


def main(request: dict[str, Any]) -> dict[str, Any]:
    offline.watch()
    model = scripted(request["steps"])
    settings = request.get("settings")
    (log,) = by_name(settings, model) if settings else run_example("inspect_ai", model=model)["logs"]
    messages = log.samples[0].messages if log.samples else []
    scores = log.results.scores if log.results else []
    return {
        "status": log.status,
        "error": log.error.message if log.error else None,
        "tools": [message.text for message in messages if message.role == "tool"],
        "accuracy": scores[0].metrics["accuracy"].value if scores else None,
        "attempts": offline.attempts,
    }


if __name__ == "__main__":
    print("\n" + json.dumps(main(json.loads(sys.argv[1]))))
