"""Jupyter's wire without its channels: kernels, and the kernelspecs that a client may choose.

A kernel is a sandbox of the tenant's, whichever wire made it. A Jupyter Server that has this one as its gateway knows
only kernels that it started itself; so each sandbox has a kernelspec of its own, by which it is joined.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ....core.codes import UsageCode
from ....core.model import PYTHON_KERNEL, Settings
from ....core.package_files import brought
from ....core.version import __version__
from ....sdk.client import handle_of
from ..bodies import Body
from ..codes import ServeCode
from ..replicas import Locus
from ..requests import Refusal, answer
from ..tenants import TEMPLATE, Lease, Tenant, Tenants
from .channels import is_own, shut_down
from .front import front_of

PREFIX = "/jupyter"
WIRE = "jupyter/"
"""The names of its sandboxes begin so."""
DEFAULT = "python3"
"""What clients ask for if nobody says, and many cannot ask for anything else: the image of the settings."""
ALIASES = frozenset({"", DEFAULT, "python", "sandbox-python", TEMPLATE, "code-interpreter-v1"})
JOIN = "join-"
"""The kernelspec of a sandbox that is there begins so."""
LOGOS = ("logo-svg.svg", "logo-32x32.png", "logo-64x64.png")
MEDIA = {"svg": "image/svg+xml", "png": "image/png"}
MAX_TITLE = 60
_STARTED = datetime.now(UTC)


def kernel_id(lease: Lease) -> str:
    """Return the id of a kernel, in the form that a Jupyter Server insists on."""
    if re.fullmatch("[0-9a-f]{32}", lease.id):
        return str(uuid.UUID(hex=lease.id))
    return str(uuid.uuid5(uuid.NAMESPACE_OID, lease.id))


def find(tenants: Tenants, tenant: Tenant, identity: str) -> Lease:
    """Return the sandbox of a kernel. Raises `Refusal`."""
    for lease in tenants.all_of(tenant):
        if identity in {kernel_id(lease), lease.id}:
            return lease
    raise Refusal(404, ServeCode.NO_SUCH_SANDBOX, f"Kernel does not exist: {identity[:64]}", elsewhere=True)


def where(tenants: Tenants, request: HTTPConnection, tenant: Tenant) -> Locus | None:
    """Say whether the kernel of a request is here."""
    identity = request.path_params.get("kernel_id")
    if identity is None:
        return None
    return Locus(is_here=any(identity in {kernel_id(one), one.id} for one in tenants.all_of(tenant)))


def _found(request: Request, tenants: Tenants, tenant: Tenant) -> Lease:
    return find(tenants, tenant, request.path_params["kernel_id"])


def title(lease: Lease) -> str:
    """Return what people call a sandbox: what its client called it, or the wire, or its id."""
    given = lease.sandbox.metadata.get("name") or lease.name or f"{lease.wire} {lease.id[:8]}"
    return "".join(one for one in given[: 4 * MAX_TITLE] if one.isprintable())[:MAX_TITLE]


def _join_name(lease: Lease) -> str:
    slug = re.sub(r"[^A-Za-z0-9_.]+", "-", title(lease)).strip("-.")
    return f"{JOIN}{slug or 'sandbox'}-{lease.id[:8]}"


def _spec_name(lease: Lease) -> str:
    if not is_own(lease):
        return _join_name(lease)
    return DEFAULT if lease.template in ALIASES else lease.template


# --- kernelspecs ------------------------------------------------------------------------------------------------------


def _spec(name: str, display: str, settings: Settings) -> dict[str, Any]:
    return {
        "name": name,
        "spec": {
            "argv": [],
            "env": {},
            "display_name": display,
            "language": "python" if settings.kernel == PYTHON_KERNEL else settings.kernel,
            "interrupt_mode": "message",
            "metadata": {},
        },
        "resources": {logo.partition(".")[0]: f"{PREFIX}/kernelspecs/{name}/{logo}" for logo in LOGOS},
    }


def _specs(tenants: Tenants, tenant: Tenant) -> dict[str, Any]:
    found = {DEFAULT: _spec(DEFAULT, "Python 3 (sandbox)", tenants.templates[TEMPLATE])}
    for name, settings in tenants.templates.items():
        if name not in ALIASES and re.fullmatch(r"[\w.%-]+", name) and not name.startswith(JOIN):
            found[name] = _spec(name, f"{name} (sandbox)", settings)
    for lease in tenants.all_of(tenant):
        if not is_own(lease) or front_of(lease).is_listed:
            name = _join_name(lease)
            found[name] = _spec(name, f"Join: {title(lease)}", lease.sandbox.settings)
    return found


async def kernelspecs(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """List the kernelspecs: templates, and sandboxes to join."""
    return answer({"default": DEFAULT, "kernelspecs": _specs(tenants, tenant)})


async def kernelspec(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Say what a kernelspec is."""
    name = request.path_params["name"]
    specs = _specs(tenants, tenant)
    if name in ALIASES:
        name = DEFAULT
    if name not in specs:
        raise Refusal(404, ServeCode.TEMPLATE_UNKNOWN, f"Kernel spec {name[:64]} not found")
    return answer(specs[name])


async def logo(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Send a logo."""
    name = request.path_params["file"]
    if name not in LOGOS:
        raise Refusal(404, ServeCode.REQUEST_IMPROPER, "There is no such file")
    content = (brought("kernelspec") / name).read_bytes()
    return Response(content, media_type=MEDIA[name.rpartition(".")[2]])


# --- kernels ----------------------------------------------------------------------------------------------------------


def _moment(when: datetime) -> str:
    """Return a time in the one form that clients parse."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _described(lease: Lease) -> dict[str, Any]:
    session, front = handle_of(lease.sandbox).session, front_of(lease)
    state = "busy" if any(session.running_cells()) else "idle"
    return {
        "id": kernel_id(lease),
        "name": _spec_name(lease),
        "last_activity": _moment(front.used),
        "execution_state": state if session.is_open else "starting",
        "connections": len(front.clients),
        "sandbox": {"id": lease.id, "name": title(lease), "template": lease.template, "state": lease.state},
    }


async def version(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Say which version of this server that is."""
    return answer({"version": __version__})


async def status(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Say how many kernels and connections there are."""
    fronts = [front_of(lease) for lease in tenants.all_of(tenant)]
    used = max((front.used for front in fronts), default=_STARTED)
    return answer(
        {
            "started": _moment(_STARTED),
            "last_activity": _moment(used),
            "connections": sum(len(front.clients) for front in fronts),
            "kernels": len(fronts),
        }
    )


async def kernels(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """List all sandboxes of the tenant."""
    found = [_described(lease) for lease in tenants.all_of(tenant)]
    if tenants.replicas is not None:
        found = await tenants.replicas.united(request, found, "id")
    return answer(found)


async def sessions(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """List no sessions: notebooks lie with whoever has them."""
    return answer([])


class NewKernel(Body):
    name: str = ""
    env: Any = None


async def start(request: Request, tenants: Tenants, tenant: Tenant, body: NewKernel) -> Response:
    """Make a sandbox, or join the one whose kernelspec that is."""
    name = body.name
    if name.startswith(JOIN):
        lease = next((one for one in tenants.all_of(tenant) if _join_name(one) == name), None)
        if lease is None:
            raise Refusal(404, ServeCode.NO_SUCH_SANDBOX, f"The sandbox of {name[:100]!r} has ended")
        await tenants.resume(lease)
    else:
        template = TEMPLATE if name in ALIASES else name
        if template not in tenants.templates:
            words = f"Kernel spec {name[:100]!r} was not found; GET {PREFIX}/api/kernelspecs lists them"
            raise Refusal(404, ServeCode.TEMPLATE_UNKNOWN, words)
        own = f"{WIRE}{secrets.token_hex(4)}"
        lease = await tenants.create(tenant, template, tenants.templates[template], tenants.limits.lifetime, own)
        # A Jupyter Server that has this one as its gateway says `env`, and shows its own kernels to people itself.
        front_of(lease).is_listed = body.env is None
    return answer(_described(lease), 201, {"Location": f"{PREFIX}/api/kernels/{kernel_id(lease)}"})


async def show(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Say what a kernel is."""
    return answer(_described(_found(request, tenants, tenant)))


async def end(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """End a sandbox that this wire made; leave another one."""
    await shut_down(tenants, _found(request, tenants, tenant))
    return Response(status_code=204)


async def interrupt(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Interrupt the cell that runs, whoever asked for it."""
    await _found(request, tenants, tenant).sandbox.interrupt()
    return Response(status_code=204)


async def restart(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Start the kernel of a sandbox again; its files stay."""
    lease = _found(request, tenants, tenant)
    if lease.sandbox.is_paused:
        raise Refusal(409, UsageCode.WRONG_ARGUMENT, "The sandbox is paused")
    await front_of(lease).restart()
    return answer(_described(lease))


async def notebook(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
    """Send the cells that ran in a sandbox, by all wires, as a notebook."""
    lease = _found(request, tenants, tenant)
    kernel = lease.sandbox.settings.kernel
    found = front_of(lease).history.notebook(title(lease), "python" if kernel == PYTHON_KERNEL else kernel)
    return answer(found, headers={"Content-Disposition": f'attachment; filename="{_join_name(lease)}.ipynb"'})


ROUTES: tuple[tuple[str, str, Callable[..., Awaitable[Response]]], ...] = (
    ("GET", "/api", version),
    ("GET", "/api/status", status),
    ("GET", "/api/kernelspecs", kernelspecs),
    ("GET", "/api/kernelspecs/{name}", kernelspec),
    ("GET", "/kernelspecs/{name}/{file}", logo),
    ("GET", "/api/sessions", sessions),
    ("GET", "/api/kernels", kernels),
    ("POST", "/api/kernels", start),
    ("GET", "/api/kernels/{kernel_id}", show),
    ("DELETE", "/api/kernels/{kernel_id}", end),
    ("POST", "/api/kernels/{kernel_id}/interrupt", interrupt),
    ("POST", "/api/kernels/{kernel_id}/restart", restart),
    ("GET", "/api/kernels/{kernel_id}/notebook", notebook),
)
"""Each below `PREFIX`."""
