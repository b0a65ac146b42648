"""Messages as they come out of a container, for the tests of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox_kernel.core.model import Channel, Message
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.verdict import Verdict
from tests.support.policy.widget_spec import own_names

CELL = "cell-1"


def message(
    kind: str,
    content: Mapping[str, Any],
    *,
    channel: Channel = "iopub",
    parent: str = CELL,
    buffers: tuple[bytes, ...] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Message:
    header = {"msg_id": "m1", "msg_type": kind}
    return Message(
        channel=channel,
        header=header,
        parent={"msg_id": parent},
        content=content,
        buffers=buffers,
        metadata=metadata or {},
    )


def display(data: Mapping[str, Any], kind: str = "display_data", **more: Any) -> Message:
    return message(kind, {"data": data, "metadata": {}, "transient": {}, **more})


def filtered(data: Mapping[str, Any], policy: OutputPolicy | None = None) -> tuple[dict[str, Any], Verdict]:
    """Return the bundle that a display of `data` becomes."""
    verdict = (policy or OutputPolicy("safe")).apply(display(data))
    assert verdict.message is not None
    return dict(verdict.message.content["data"]), verdict


def model(comm_id: str, name: str, module: str | None = None, /, **state: Any) -> Message:
    """Return the opening of a widget model, with the module and the view that ipywidgets itself gives it."""
    if module is None and name in own_names():
        names = own_names()[name]
    else:
        module = module or "@jupyter-widgets/controls"
        names = {"_model_module": module, "_model_module_version": "2.0.0", "_model_name": name}
        names |= {"_view_module": module, "_view_module_version": "2.0.0", "_view_name": name.replace("Model", "View")}
    data = {"state": names | state, "buffer_paths": []}
    content = {"comm_id": comm_id, "target_name": "jupyter.widget", "data": data}
    return message("comm_open", content, metadata={"version": "2.1.0"})


def update(comm_id: str, **state: Any) -> Message:
    data = {"method": "update", "state": state, "buffer_paths": []}
    return message("comm_msg", {"comm_id": comm_id, "data": data})
