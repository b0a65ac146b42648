"""`sandbox-kernel serve`: its options, its start and its end. What needs the extra is imported when it runs.

Where a broker can be had, it keeps the sandboxes, and the next server takes them over. Else whatever ends the server, a
signal or SIGKILL, ends all sandboxes: each hangs on a pipe of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import logging
import shlex
import ssl
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...config.forms import seconds
from ...config.sources import from_files_for_all, merged, resolve
from ...core.codes import EndCode, UsageCode
from ...core.descriptors import room_for_files
from ...core.errors import ConfigurationError, SandboxError
from ...core.model import Settings
from ...core.remedies import install_words
from ...core.tasks import Tasks
from ...engines.select import AUTO, BROKER, ServiceProvider, provider, with_largest_image
from ...sdk.ownership import keeper
from ..mcp.server_process import asked_to_end, closed_in_time, count, require_packages, say
from .codes import ServeCode

if TYPE_CHECKING:
    from .certificates import Certificates
    from .place import ServerAddress
    from .tenants import ServeLimits, Tenants
    from .token_file import Tokens

NEEDED = ("mcp", "python_multipart", "starlette", "uvicorn", "websockets")
RESOLVE_SECONDS = 3.0
"""For finding out whether this machine knows a name below the domain."""
DOMAIN = "sandbox.localhost"
"""Of `--domain` without a name. Clients take no certificate for `*.localhost`, so it is one label longer."""
TEMPLATES = ("base", "code-interpreter-v1")
"""What clients of E2B ask for if nobody says: the image of the settings."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=count, default=8809, help="the port; 0 for any free port (default: %(default)s)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="who may use the server: a name and a token on each line. A missing file is created with a new token. "
        "Without this option, it is a file in the data folder of this user",
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="the certificate with its chain, as PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="the key of the certificate, as PEM")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients reach the server, besides localhost; may be repeated",
    )
    parser.add_argument(
        "--domain",
        nargs="?",
        const=DOMAIN,
        metavar="NAME",
        help="a domain below which clients find the server and each sandbox by names (E2B_DOMAIN): api.NAME and *.NAME "
        "must lead to the server. Without --tls-cert, the server makes a certificate and an authority for it, which is "
        "kept beside the token file (without a NAME: %(const)s)",
    )
    parser.add_argument(
        "--peers",
        action="append",
        default=[],
        metavar="NAME[:PORT]",
        help="further servers with the same tokens and names, each with sandboxes of its own: a name that leads to all "
        "of them, as that of a headless service, or an address. A request for a sandbox of theirs is passed on. With "
        "TLS, their certificates are checked by this name; may be repeated",
    )
    parser.add_argument(
        "--template",
        action="append",
        default=[],
        metavar="NAME=IMAGE",
        help="an image that clients may choose, by a name; may be repeated. base and code-interpreter-v1 are the image "
        "of the settings",
    )
    parser.add_argument(
        "--tenant-dataset",
        action="append",
        default=[],
        metavar="NAME:DATASET",
        help="have a dataset of the settings for this name of the token file alone; may be repeated",
    )
    parser.add_argument(
        "--librechat-key",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a name of the token file, and the public key (PEM) of the tokens that LibreChat signs for requests of "
        "that name (CODEAPI_JWT_ENABLED); may be repeated",
    )
    parser.add_argument(
        "--sandboxes-per-tenant", type=count, default=8, metavar="N", help="sandboxes of one name (default: 8)"
    )
    parser.add_argument("--sandboxes", type=count, default=32, metavar="N", help="sandboxes of all names (default: 32)")
    parser.add_argument(
        "--lifetime-limit",
        default="86400",
        metavar="SECONDS",
        help="how long a sandbox may be asked to last (default: %(default)s)",
    )
    parser.set_defaults(
        mcp=None, allow_remote=None
    )  # of `mcp --http`, which starts this server with options of its own
    parser.add_argument(
        "--idle-makes-room",
        metavar="SECONDS",
        help="for users of Open WebUI: where there is no room, the sandbox that was idle for the longest time, so many "
        "seconds at least, ends for that of another user. Without this option, the other user is refused",
    )


def serve(options: argparse.Namespace) -> int:
    """Serve sandboxes to the clients of hosted interpreters (E2B), over HTTP.

    The official clients take it as it is; the variables to set are printed. Each name of the token file has sandboxes
    of its own, with the settings below. A broker keeps them, so that they outlive the server, unless another engine is
    named. It needs the packages mcp,
    starlette, uvicorn, websockets and python-multipart. docs/serve.md shows what clients can do.
    """
    files = from_files_for_all()
    files.pop("downloads", None)  # of kernels: here all tenants would share it
    settings = resolve(merged(files, options.values))
    require_packages(NEEDED, "serve", "the server")
    from .tenants import ServeLimits

    if settings.downloads is not None:
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER,
            "downloads is one folder, where tenants would replace each other's files",
            setting="downloads",
        )
    for name in ("sandboxes", "sandboxes_per_tenant"):
        if not 1 <= getattr(options, name) <= 1000:
            raise ConfigurationError(EndCode.WRONG_SETTING, f"{name} must be 1 to 1000", setting=name.replace("_", "-"))
    if options.port > 65535:
        raise ConfigurationError(EndCode.WRONG_SETTING, "port must be 0 to 65535", setting="port")
    idle = options.idle_makes_room
    limits = ServeLimits(
        sandboxes=options.sandboxes,
        sandboxes_per_tenant=options.sandboxes_per_tenant,
        lifetime=seconds(1)("lifetime-limit", options.lifetime_limit),
        idle_makes_room=None if idle is None else seconds(1)("idle-makes-room", idle),
    )
    if "image" not in files | options.values:
        settings = asyncio.run(with_largest_image(settings))
    return asyncio.run(_serve(options, templates(settings, options.template), limits))


def templates(settings: Settings, given: list[str]) -> dict[str, Settings]:
    """Return the settings for each template. Raises `ConfigurationError` for one that is not `NAME=IMAGE`."""
    found = dict.fromkeys(TEMPLATES, settings)
    for one in given:
        name, _, image = one.partition("=")
        if not name or not image or not name.isprintable():
            words = "a template is a name and an image: data=sandbox-kernel:data"
            raise ConfigurationError(EndCode.WRONG_SETTING, words, value=repr(one), setting="template")
        found[name] = replace(settings, image=image)
    return found


def datasets_of(given: list[str], settings: Settings, names: Collection[str]) -> dict[str, set[str]]:
    """Return the datasets that are of some tenants alone. Raises `ConfigurationError`, also for volumes of several."""
    known = {text.partition("=")[0] for text in settings.get("datasets", ())}
    found: dict[str, set[str]] = {}
    for one in given:
        name, _, dataset = one.partition(":")
        if name not in names or dataset not in known:
            words = "that is no name of the token file and a dataset of the settings: alice:sales"
            raise ConfigurationError(EndCode.WRONG_SETTING, words, value=repr(one), setting="tenant-dataset")
        found.setdefault(dataset, set()).add(name)
    from .token_file import METRICS

    written = [text for text in settings.get("volumes", ()) if text.endswith(":rw")]
    if written and len(set(names) - {METRICS}) > 1:
        words = "a volume that is written to would be one for all names of the token file"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, words, value=written[0], setting="volumes")
    return found


async def _serve(options: argparse.Namespace, offered: dict[str, Settings], limits: ServeLimits) -> int:
    from .application import application
    from .domain import checked
    from .jupyter.front import front_of
    from .lease_files import LeaseFiles
    from .place import ServerAddress
    from .replicas import Replicas, parsed
    from .signed_tokens import signers_of
    from .tenants import Tenants
    from .token_file import METRICS
    from .web_server import WebServer

    domain = None if options.domain is None else checked(options.domain)
    place = ServerAddress(
        host=options.host,
        port=options.port,
        names=tuple(options.allowed_host),
        tls=options.tls_cert is not None or domain is not None,
        token_file=options.token_file is not None,
        domain=domain,
        remote=options.allow_remote,
    )
    room_for_files()
    context = tls(options.tls_cert, options.tls_key)
    listener = place.listen()
    tokens, path = _tokens(options.token_file)
    tokens.signers = signers_of(options.librechat_key, set(tokens.names) - {METRICS})
    datasets = datasets_of(options.tenant_dataset, offered[TEMPLATES[0]], tokens.names)
    own = _certificates(domain, path) if domain is not None and not context else None
    if own is not None:
        context = {"ssl_certfile": str(own.server)}
    offered, why_not = await _kept(offered)
    files = LeaseFiles(path.absolute().with_name(f"{path.name}.sandboxes")) if why_not is None else None
    tenants = Tenants(offered, limits, files, datasets)
    if options.peers:
        trust = ssl.create_default_context() if context else None
        tenants.replicas = Replicas(parsed(options.peers, listener.getsockname()[1]), trust)
    tenants.on_lease.append(front_of)  # what is asked by other wires is in the notebook of a sandbox, too
    web = WebServer(application(tenants, tokens, place.known(), options.mcp), sockets=True, **context)
    found = await tenants.take_over(tokens.names)  # with the tools of its wires
    stop = asked_to_end()
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    say(_words(listener.getsockname(), place, path, tokens, own))
    _say_of(offered, found, why_not)
    if domain is not None and (words := await _unknown(domain)):
        say(words)
    logging.getLogger("uvicorn.error").addFilter(_is_no_cut)
    following = _following(path, tokens, tenants)
    await asyncio.wait({serving, waiting := asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await following.close()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # each stream that is cut is a traceback to it
    last = await closed_in_time(tenants.close())  # first: a stream that is cut before would interrupt its cell
    if last is not None:
        say(f"sandboxes go on without this server, the last one until {last:%F %T} UTC; the next server has them")
    web.should_exit = True
    await serving
    return 0


def _is_no_cut(record: logging.LogRecord) -> bool:
    """Return whether a line of the web server's is not about a stream that ended with its sandbox, as is meant."""
    return not record.getMessage().startswith("ASGI callable returned without completing response")


def _say_of(offered: dict[str, Settings], found: int, why_not: str | None) -> None:
    """Say what sandboxes are made of, what becomes of them, and what may become of them by each other."""
    if any(each.limits_kept == "best-effort" for each in offered.values()):
        say(
            "limits are best-effort: where the engine cannot keep them, one sandbox may take from all until it is ended"
        )
    made = f"they have the image {offered[TEMPLATES[0]].image}"
    if why_not is not None:
        say(f"sandboxes end with this server: {why_not}; {made}")
    else:
        say(f"sandboxes outlive this server: a broker keeps them; {made}{f'; {found} of them go on' if found else ''}")


def _following(path: Path, tokens: Tokens, tenants: Tenants) -> Tasks:
    """Begin to read the token file again when it changes."""
    from .token_file import METRICS, follow

    def read_again(words: str) -> None:
        now = set(tokens.names) - {METRICS}
        tenants.gone = (tenants.gone | frozenset(tenants.names)) - now
        tenants.names = now
        say(words)

    tasks = Tasks()
    tasks.start(follow(path, tokens, read_again), "reading the tokens again")
    return tasks


async def _kept(offered: dict[str, Settings]) -> tuple[dict[str, Settings], str | None]:
    """Return the settings with the broker that keeps the sandboxes, or why none does.

    Raises `SandboxError` if a broker is named that cannot be asked.
    """
    settings = offered[TEMPLATES[0]]
    named = settings.engine != AUTO
    if named and settings.engine.partition(":")[0] != BROKER:
        return offered, f"engine = {settings.engine}, and no broker"
    engine = settings.engine if named else BROKER
    try:
        service = provider(engine)
        if not isinstance(service, ServiceProvider):
            return offered, "the plugin broker is not here"
        offered = {name: replace(one, engine=engine) for name, one in offered.items()}
        for one in offered.values():
            keeper().ownership(one, None, {}, True)  # which says what no broker keeps
        await service.begin(engine)
    except SandboxError as error:
        if named:
            raise
        return {name: replace(one, engine=AUTO) for name, one in offered.items()}, str(error)
    return offered, None


def tls(certificate: Path | None, key: Path | None) -> dict[str, Any]:
    """Return what uvicorn takes for TLS. Raises `ConfigurationError` for one of the files without the other."""
    if certificate is None and key is None:
        return {}
    if certificate is None or key is None:
        words = "a certificate and its key go together: --tls-cert and --tls-key"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, words, setting="tls-cert")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        words = f"the certificate {certificate} and the key {key} cannot be used: {error}"
        raise ConfigurationError(EndCode.WRONG_SETTING, words, setting="tls-cert") from None
    return {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}


def _tokens(given: Path | None) -> tuple[Tokens, Path]:
    from ...core.home_folder import home_folder
    from .token_file import tokens_of

    path = given
    if path is None:
        path = Path(home_folder() or "/", ".local/share/sandbox-kernel/serve-tokens")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            words = f"{path.parent} cannot be made: {error.strerror}; name a file with --token-file"
            raise ConfigurationError(ServeCode.SERVE_TOKENS_UNFIT, words, setting="token-file") from None
    return tokens_of(path), path


def _certificates(domain: str, tokens: Path) -> Certificates:
    """Return our own certificates for a domain, which lie beside the token file. Raises `ConfigurationError`."""
    if importlib.util.find_spec("cryptography") is None:
        words = f"a certificate of our own needs the package cryptography: {install_words('serve')}"
        raise ConfigurationError(UsageCode.PACKAGE_MISSING, words, setting="domain")
    from .certificates import certificates_for

    return certificates_for(domain, tokens.absolute().with_name("serve-certificates"))


async def _unknown(domain: str) -> str:
    """Return what to do where this machine does not know a name below the domain; nothing if it does."""
    try:
        await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo(f"api.{domain}", None), RESOLVE_SECONDS)
    except OSError as error:
        words = f"this machine does not find api.{domain} ({error}): clients on it need a name server that does"
        return f"{words}, or libnss-myhostname" if domain.endswith(".localhost") else words
    return ""


def _words(
    address: tuple[Any, ...], place: ServerAddress, path: Path, tokens: Tokens, certificates: Certificates | None
) -> str:
    """Return what the operator is told: the address, where the tokens lie, and what clients set."""
    from .token_file import METRICS

    host, port = address[:2]
    names = place.names
    if not names and place.domain is not None and host in {"0.0.0.0", "::"}:  # noqa: S104 (which is no address to call)
        names = (place.domain,)
    scheme = "https" if place.tls else "http"
    if names:
        url = f"{scheme}://{names[0]}" if ":" in names[0] else f"{scheme}://{names[0]}:{port}"
    else:
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    name = next((one for one in tokens.names if one != METRICS), METRICS)
    key = f"$(awk '$1 == \"{name}\" {{print $2; exit}}' {shlex.quote(str(path.absolute()))})"
    found = f"E2B_API_URL={url} E2B_SANDBOX_URL={url}"
    if place.domain is not None:
        found = f"E2B_DOMAIN={place.domain}{'' if port == 443 else f':{port}'}"
    if certificates is not None:
        bundle, authority = (shlex.quote(str(one)) for one in (certificates.bundle, certificates.authority))
        found += f" SSL_CERT_FILE={bundle} NODE_EXTRA_CA_CERTS={authority}"
    lines = [
        url,
        f"tokens: in {path.absolute()}",
        f'for clients of E2B: export {found} E2B_API_KEY="{key}"',
        f'for clients of MCP: {url}/mcp with the header "Authorization: Bearer {key}"',
        f'for clients of Jupyter: JUPYTER_GATEWAY_AUTH_TOKEN="{key}" jupyter lab --gateway-url={url}/jupyter',
        f'for clients of LibreChat\'s wire: LIBRECHAT_CODE_BASEURL="{url}/librechat/{key}/v1"',
        f'for clients of Open Terminal: {url}/open-terminal with the key "{key}"',
    ]
    return "\n".join(lines)
