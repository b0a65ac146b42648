"""What a fuzzer cannot be expected to guess: names that the product knows, and hostile and honest texts of the tests."""

# ruff: noqa: E501 (tables of words)

from __future__ import annotations

from sandbox_kernel.policy import protocol, replies
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.corpus import BUNDLES, MORE_HTML
from tests.support.policy.hostile import HTML, MARKDOWN

__all__ = ["BUNDLES", "MIMES", "NAMES", "REQUESTS", "SNIPPETS", "TYPES", "WORDS"]

MIMES = (
    "text/plain", "text/html", "text/markdown", "text/latex", "image/png", "image/jpeg", "image/gif", "image/webp",
    "image/svg+xml", "application/json", "application/javascript", "application/pdf", "text/vnd.mermaid",
    "application/vnd.jupyter.widget-view+json", "application/vnd.jupyter.stdout", "application/vnd.jupyter.error",
    "application/vnd.plotly.v1+json", "application/vnd.vegalite.v5+json", "application/geo+json", "TEXT/HTML", "text/html ",
)  # fmt: skip

TYPES = tuple(
    dict.fromkeys(
        (
            *OutputPolicy("safe").types,
            *replies.REPLIES,
            *sorted(protocol.PUBLISHED),
            "unknown",
            "iopub_welcome",
            "custom_reply",
        )
    )
)
"""Types of messages out of a kernel."""

REQUESTS = (*protocol.REQUESTS, "custom_request", "custom")

WORDS = tuple(
    dict.fromkeys(
        (
            *MIMES, *TYPES, "data", "metadata", "transient", "display_id", "model_id", "version_major", "version_minor", "name",
            "text", "stdout", "stderr", "comm_id", "target_name", "target_module", "state", "_model_name", "_model_module",
            "_model_module_version", "_view_name", "_view_module", "_view_module_version", "buffer_paths", "method", "update",
            "echo_update", "custom", "update_states", "states", "content", "payload", "source", "page", "start", "set_next_input",
            "user_expressions", "status", "ok", "error", "aborted", "matches", "_jupyter_types_experimental", "help_links", "url",
            "ename", "evalue", "traceback", "outputs", "output_type", "prompt", "password", "echo", "body", "value", "format",
            "target", "msg_id", "msg_type", "session", "subshell_id", "_dom_classes", "__proto__", "constructor", "prototype",
            "history", "indent", "wait", "execution_count", "execution_state", "busy", "idle", "dead", "starting", "restarting",
            "description", "description_allow_html", "description_tooltip", "icon", "layout", "style", "width", "height",
            "grid_area", "do", "focus", "blur", "isolated", "trusted", "needs_background", "unconfined", "expanded", "root",
            "jupyter.widget", "jupyter.widget.control", "@jupyter-widgets/base", "@jupyter-widgets/controls",
            "@jupyter-widgets/output", "anywidget", "_esm", "_css", "HTMLModel", "HTMLMathModel", "LabelModel", "LinkModel",
            "DirectionalLinkModel", "OutputModel", "LayoutModel", "IntSliderModel", "IntSliderView", "SliderStyleModel",
            "ImageModel", "VideoModel", "TextModel", "BoxModel", "IPY_MODEL_a", "IPY_MODEL_b", "a", "b", "c", "h", "m", "r1",
            "r2", "r3", "cell-1", "code", "allow_stdin", "stop_on_error", "silent", "event", "stopped", "continued", "op", "id",
            "hello", "kernel_ready", "kernel_exited", "oversized", "resumed", "reply", "report", "number", "signal", "ooms",
            "tail", "channel", "bytes", "parent", "ready", "files", "others", "complete", "stamp", "missing", "link",
            "no_space", "language_info", "supported_features", "implementation_version", "command", "attach", "version",
            "model_name", "model_module", "model_module_version", "min", "max", "index", "2.0.0", "^4", "*", "url", "found",
            "cursor_start", "cursor_end", "signature", "type", "success", "seq", "light", "dark", "svg+xml", "png",
        )
    )
)  # fmt: skip

HONEST = (
    "<table border=\"1\" class=\"dataframe\"><thead><tr style=\"text-align: right;\"><th></th><th>a</th></tr></thead><tbody><tr><th>0</th><td>1</td></tr></tbody></table>",
    "<style type=\"text/css\">\n#T_a1 td { color: red; }\n#T_a1_row0_col0 { background-color: #fff7fb; color: #000000; }\n</style>\n<table id=\"T_a1\"><tr><td id=\"T_a1_row0_col0\" class=\"data row0 col0\">1</td></tr></table>",
    "<pre style=\"white-space:pre;overflow-x:auto;line-height:normal\"><span style=\"color: #008000\">x</span></pre>",
    "<div><script type=\"text/javascript\">window.PlotlyConfig = {};</script><div id=\"p\" class=\"plotly-graph-div\" style=\"height:525px; width:100%;\"></div></div>",
    "<a href=\"https://example.org/?a=1&amp;b=2\" title='x'>a link</a> <img src=\"data:image/png;base64,iVBORw0KGgo=\" width=10>",
    "<details open><summary>s</summary><ul><li>1<li>2</ul></details> 1 < 2 && 3 > 2 &lt;b&gt; &#x41;",
    "<audio controls><source src=\"data:audio/wav;base64,UklGRg==\" type=\"audio/wav\"></audio>",
    "# Title\n\n* a\n* `b`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[link](https://example.org) **bold** $x^2$ $$\\frac{a}{b}$$",
    "\x1b[0;31mValueError\x1b[0m: x\n\x1b[1;32m      1\x1b[0m raise", "\r 50%|█████     | 5/10 [00:00<00:00]\x1b[A\r\n\x1b[2K", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=",
    "/9j/4AAQSkZJRgABAQ==", "R0lGODlhAQABAIAAAAUEBA==", "UklGRiQAAABXRUJQ", "$\\displaystyle \\int_0^1 x\\,dx$", "<svg xmlns='http://www.w3.org/2000/svg'><rect width='9' height='9'/></svg>",
)  # fmt: skip

TERMINAL = (
    "\x1b]0;title\x07", "\x1b]52;c;eA==\x07", "\x1b]8;;http://evil.test\x1b\\x\x1b]8;;\x1b\\", "\x9b2J", "\x1b[2J\x1b[H", "\x1bc", "\x1b[6n",
    "\x1bP1;1|x\x1b\\", "\x1b[99A", "\x1b[3F", "\x1b[?1049h", "\x1b#8", "\x08\x08", "\x1b[1;31", "m", "\x1b", "[0m", "\x1b]8;;javascript:x\x07",
    "\x9d0;x\x9c", "\u202e", "\x1b%G", "\x1b[38;2;1;2;3m", "\x1b[K", "\x1b[0A", "\x1b[A\x1b[A\n", "\x1b[1@", "\x1bM", "\x1bD", "\x1b[5S",
)  # fmt: skip

TEX = (
    r"\href{javascript:alert(1)}{x}", r"$\style{position:fixed}{x}$", r"\require{html}", r"\h\hrefref{a}{b}", r"\begin{a}\href{x}{y}\end{a}",
    r"\unicode{x}", r"\def\a{\href}\a{x}{y}", "\\href\u200b{a}{b}", r"\\href{x}{y}", r"\csname href\endcsname{javascript:x}{y}",
)  # fmt: skip

CSS = (
    "color:red;background:#fff", "background:url(//evil.test)", "width:expression(1)", "position:fixed;inset:0", "margin:-9px", "p{color:red}", "@import 'x';",
    "background:\\75rl(x)", "a:b;c", "font-family:'x;y'", "border:1px solid rgb(0,0,0)", "background:linear-gradient(90deg, #5fba7d 50%, transparent 50%)",
)  # fmt: skip

SNIPPETS = tuple(
    dict.fromkeys(
        (
            *HTML.values(), *MORE_HTML.values(), *MARKDOWN.values(), *HONEST, *TERMINAL, *TEX, *CSS,
            *(value for bundle in BUNDLES.values() for value in bundle.values() if isinstance(value, str)),
        )
    )
)  # fmt: skip

NAMES = (
    "a", "a/b", "chart.png", "../outside/secret", "/etc/passwd", "..", ".", "", "a/../../outside/secret", "a//b", "out/secret", "two\nlines", "link",
    ".bashrc", "x" * 256, "a\0b", "/".join("x" * 17), "a\\b", "C:\\x", "con", "\u202etxt.exe", "e\u0301", "a/", "./a", "a/.", "__pycache__/x.pyc", "x.pth",
    "sitecustomize.py", "desktop.ini", "~", "~root/x", "-rf", "$(x)", "a b", "%2e%2e/x", "..\u200b/x", "folder", "folder/file", "file/below",
    "\ufeffa", "a\u2028b", "\U000e0041", "é" * 128, "loop/loop", "fifo", "out", "ok.txt",
)  # fmt: skip
