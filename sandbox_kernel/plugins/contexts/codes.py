"""Why a context cannot be had, as codes."""

from __future__ import annotations

from ...core.codes import Code


class ContextCode(Code):
    """Why a context cannot be had."""

    CONTEXT_UNKNOWN = "failure", "the sandbox has no such context", "Call list_contexts()."
    CONTEXT_OF_SANDBOX = "failure", "the context of the sandbox's own kernel is not removed", "Kill the sandbox."
    NO_NESTED_AGENT = "failure", "the sandbox cannot have one more kernel: {why}", "Remove a context, or raise pids."
    NO_FOLDER = "failure", "a kernel cannot begin in this folder: {why}", "Choose a folder that cells can enter."
    LANGUAGE_UNKNOWN = (
        "failure",
        "the image {image!r} has no kernel for {language!r}; it has {has}",
        "Choose one of these, or build an image that has it (docs/languages.md).",
    )
