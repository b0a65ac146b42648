"""An extension of Jupyter Server: a second wall, in the browser, around the pages that show notebooks.

The output policy of the kernel is the first wall. If something got through it, or a kernel has `outputs = trusted`, the
page's own Content-Security-Policy still lets no handler and no script of an output run and nothing load from elsewhere.
It is sent beside the server's own policy, and browsers obey both: nothing is loosened. The only setting is the server's
own configuration (`c.SandboxKernelPolicy`), which no notebook and no kernel can reach.

Where the operator says so (`c.SandboxKernels.allowed`), the server starts kernels of this package only.

Loaded by Jupyter Server, so it may import tornado and traitlets; of this package, the command of a kernel, policy.frame
and policy.html_blocks.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import HTTPError, OutputTransform
from traitlets import Bool, Dict, List, TraitError, Unicode, validate
from traitlets.config import Configurable

from ...core.kernel_command import PROVISIONER, is_own
from ...policy.frame import HASHES
from ...policy.html_blocks import blocks

APPS = frozenset(("lab", "doc", "tree", "notebooks", "edit", "consoles", "terminals", "view"))
"""First parts of the paths of pages that are JupyterLab, Notebook, or the like."""
CONTENT = frozenset(("files", "nbconvert"))
"""... of what is made of files of the working folder, where cells may have written: shown, but never part of a page."""
CONFIGURED = b'id="jupyter-config-data"'
"""What every page of an application that is built from JupyterLab holds."""
CODE = frozenset(("script", "worker", "sharedworker", "serviceworker", "audioworklet", "paintworklet", "xslt"))
"""Destinations of a request whose answer would run as code."""

NETWORK = {
    "default-src": ("'self'",),
    "style-src": ("'self'", "'unsafe-inline'"),
    "img-src": ("'self'", "data:", "blob:"),
    "media-src": ("'self'", "data:", "blob:"),
    "font-src": ("'self'", "data:"),
    "connect-src": ("'self'", "data:", "blob:"),
    "worker-src": ("'self'", "blob:"),
    "frame-src": ("'self'", "blob:"),
    "object-src": ("blob:",),  # JupyterLab's viewer of PDF files; only a script can make an address of this kind
    "base-uri": ("'self'",),  # its viewer of HTML files
    "form-action": ("'self'",),
}
"""Nothing from elsewhere. `data:` and `blob:` hold what is in the page already, and are no network."""

SCRIPTS = {"script-src": ("'self'", "'unsafe-eval'", *HASHES), "script-src-attr": ("'none'",)}
"""The application's files, and in frames without an origin the programs that the kernel put there. JupyterLab compiles
the schemas of its settings, and does not start without 'unsafe-eval'; what would use it for an output is switched off.
"""
INLINE = {"script-src": ("'self'", "'unsafe-eval'", "'unsafe-inline'"), "script-src-attr": ("'none'",)}
OF_CONTENT = {"script-src": ("'self'", "'unsafe-eval'", "'unsafe-inline'")}
SANDBOX = "sandbox allow-scripts"
"""Jupyter sends this for files, and for converted notebooks only if it is told to."""

RENDERER = "@jupyterlab/javascript-extension"
"""Evaluates application/javascript in the page."""

_OFF = """accelerometer ambient-light-sensor bluetooth browsing-topics camera display-capture geolocation gyroscope hid
    idle-detection local-fonts magnetometer microphone midi otp-credentials payment publickey-credentials-get
    screen-wake-lock serial storage-access usb window-management xr-spatial-tracking"""
_OWN = "clipboard-read clipboard-write fullscreen"
HEADERS = {
    # Frames of outputs have another origin, or none, and get nothing of the second list either.
    "Permissions-Policy": ", ".join(
        [*(f"{name}=()" for name in _OFF.split()), *(f"{one}=(self)" for one in _OWN.split())]
    ),
    "Referrer-Policy": "same-origin",
    # A browser looks up the names of a page's links ahead, or when the pointer is over one: a name can hold a secret.
    "X-DNS-Prefetch-Control": "off",
    "Cross-Origin-Opener-Policy": "same-origin",
}

_SOURCE = re.compile(r"[^\s;,\"]{1,300}")
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class SandboxKernelPolicy(Configurable):
    """What the operator of the server may change, in jupyter_server_config.py."""

    enabled = Bool(True, help="Whether the second wall is sent at all.").tag(config=True)
    inline_scripts = Bool(
        False,
        help="Let scripts in outputs of other kernels run in the page, as some libraries need with a stock kernel "
        "(bokeh, plotly's notebook renderer). Handlers in attributes and loads from elsewhere stay refused.",
    ).tag(config=True)
    extra_sources = Dict(
        value_trait=List(Unicode()),
        help="Further sources of a directive: {'img-src': ['https://pictures.example']}. For JupyterLab extensions "
        "that load from elsewhere.",
    ).tag(config=True)

    @validate("extra_sources")
    def _check(self, proposal: Mapping[str, Any]) -> Any:
        for directive, sources in proposal["value"].items():
            if directive not in NETWORK and directive not in SCRIPTS:
                known = ", ".join([*NETWORK, *SCRIPTS])
                raise TraitError(f"SandboxKernelPolicy.extra_sources: {directive!r} is none of {known}")
            for source in sources:
                if not _SOURCE.fullmatch(source):
                    raise TraitError(f"SandboxKernelPolicy.extra_sources: {source!r} is not one source")
        return proposal["value"]

    def policy(self, kind: str, host: str, page: bytes) -> str:
        """Return the policy for a page of a kind, "app" or "content".

        `host` is what the request calls the server; `page` is the page itself, whose own scripts may run.
        """
        directives = {name: list(sources) for name, sources in NETWORK.items()}
        if _HOST.fullmatch(host):
            directives["connect-src"] += [f"ws://{host}", f"wss://{host}"]  # not every browser's 'self' has them
        scripts = OF_CONTENT if kind == "content" else INLINE if self.inline_scripts else SCRIPTS
        directives |= {name: list(sources) for name, sources in scripts.items()}
        if scripts is SCRIPTS:
            directives["script-src"] += own_scripts(page)
        for name, sources in self.extra_sources.items():
            if name in directives:
                directives[name] = [one for one in directives[name] if one != "'none'"] + sources
        parts = [f"{name} {' '.join(sources)}" for name, sources in directives.items()]
        return "; ".join([*parts, SANDBOX] if kind == "content" else parts)


class SandboxKernels(Configurable):
    """Which kernels the server starts, if that is not left to whoever asks."""

    allowed = List(
        Unicode(),
        help="Names of installed sandbox kernels. If there is one, the server starts these and no other, and the first "
        "where a request names none, or python3, for which clients ask by default. Empty: any kernel. Switch terminals "
        "off as well (ServerApp.terminals_enabled).",
    ).tag(config=True)

    def guard(self, manager: Any) -> None:
        """Have a kernel manager of a server refuse all other kernels, whichever handler asks for them."""
        start = manager.start_kernel

        async def guarded(*arguments: Any, **options: Any) -> Any:
            name = options.get("kernel_name") or USUAL
            if name == USUAL and name not in self.allowed:
                name = self.allowed[0]  # clients send this name where no kernel was chosen
            if name not in self.allowed or not is_sandbox(manager.kernel_spec_manager, name):
                allowed = ", ".join(self.allowed)
                raise HTTPError(403, f"this server starts sandboxes only: {allowed} (SandboxKernels.allowed)")
            return await start(*arguments, **options | {"kernel_name": name})

        manager.start_kernel = guarded
        manager.default_kernel_name = self.allowed[0]
        manager.kernel_spec_manager.allowed_kernelspecs = set(self.allowed)


USUAL = "python3"
"""The kernel that clients of Jupyter ask for by default. Where sandboxes alone are started, it is one."""


def is_sandbox(specs: Any, name: str) -> bool:
    """Return whether a kernel of that name is one of this package: as it installs them, or by its provisioner."""
    try:
        spec = specs.get_kernel_spec(name)
    except (KeyError, ValueError):  # there is none, or its file is broken
        return False
    return provisioner_of(spec, specs.parent) == PROVISIONER or is_own(spec.argv)


def provisioner_of(spec: Any, parent: Any) -> str:
    """Return the name of what jupyter_client starts a kernelspec with."""
    from jupyter_client.provisioning.factory import KernelProvisionerFactory

    named = spec.metadata.get("kernel_provisioner", {})
    if "provisioner_name" in named:
        return str(named["provisioner_name"])
    return str(KernelProvisionerFactory.instance(parent=parent).default_provisioner_name)


def own_scripts(page: bytes) -> list[str]:
    """Return the hashes of the scripts that the server itself wrote into a page of an application."""
    text = page.decode("utf-8", "replace")
    return [
        f"'sha256-{base64.b64encode(hashlib.sha256(text[one.start : one.end].encode()).digest()).decode()}'"
        for one in blocks(text, "script")
        if one.end > one.start and "json" not in one.attributes
    ]


def kind_of(path: str, base_url: str, page: bytes) -> str:
    """Return what a path of the server shows: "app", "content", or "" for what shows no notebook."""
    first = path.removeprefix(base_url).lstrip("/").partition("/")[0]
    if first in CONTENT:
        return "content"
    return "app" if first in APPS or CONFIGURED in page else ""


def transform(policy: SandboxKernelPolicy, base_url: str) -> type[OutputTransform]:
    """Return a class of tornado's that adds the headers to every answer of the server, whichever handler made it."""

    class Headers(OutputTransform):
        def __init__(self, request: HTTPServerRequest) -> None:
            super().__init__(request)
            self._request = request
            if kind_of(request.path, base_url, b""):
                # "Not modified" has no page whose own scripts could be told, and a browser would keep older headers.
                for name in ("If-None-Match", "If-Modified-Since"):
                    request.headers.pop(name, None)

        def transform_first_chunk(
            self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
        ) -> tuple[int, HTTPHeaders, bytes]:
            request = self._request
            html = headers.get("Content-Type", "").startswith("text/html")
            kind = kind_of(request.path, base_url, chunk if html else b"")
            if kind:
                headers.add("Content-Security-Policy", policy.policy(kind, request.host, chunk if html else b""))
                for name, value in HEADERS.items():
                    headers[name] = value
            if kind == "content":
                headers["X-Content-Type-Options"] = "nosniff"
                dest = request.headers.get("Sec-Fetch-Dest", "").lower()
                if dest in CODE or "script" in headers.get("Content-Type", "").lower():
                    # A file that a cell has written must not become a script of a page by its address. Browsers say
                    # what they want it for only to this machine and over TLS, and keep what they had as a picture.
                    headers["Content-Type"] = "text/plain"
            return status_code, headers, chunk

    return Headers


def _without_renderer(hook: Callable[[Any, dict[str, Any]], dict[str, Any]] | None) -> Callable[..., dict[str, Any]]:
    def add(handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
        if hook is not None:
            page_config = hook(handler, page_config)
        disabled = page_config.get("disabledExtensions") or []
        names = [name for name, is_off in disabled.items() if is_off] if isinstance(disabled, dict) else list(disabled)
        return {**page_config, "disabledExtensions": [*names, *([] if RENDERER in names else [RENDERER])]}

    return add


def _load_jupyter_server_extension(app: Any) -> None:
    kernels = SandboxKernels(parent=app)
    if kernels.allowed:
        kernels.guard(app.kernel_manager)
    policy = SandboxKernelPolicy(parent=app)
    if not policy.enabled:
        app.log.warning("sandbox_kernel: the second wall in the browser is switched off (SandboxKernelPolicy.enabled)")
        return
    settings = app.web_app.settings
    app.web_app.add_transform(transform(policy, settings.get("base_url", "/")))
    if not policy.inline_scripts:
        settings["page_config_hook"] = _without_renderer(settings.get("page_config_hook"))
