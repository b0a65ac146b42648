"""The variables by which the libraries of a cell find the way out. Pure; imports core and the rules.

Whatever reads none of them meets no network at all: nothing in the sandbox resolves a name or has a route.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...core.model import SERVICE_PORT, Inside
from .policy import Rule

PROXY = f"http://127.0.0.1:{SERVICE_PORT}"
"""Where the agent listens, in the sandbox's own loopback."""
BUNDLE = "/tmp/.sandbox-certificates.pem"  # noqa: S108 (a path inside the container, on its own tmpfs)

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "WSS_PROXY")
"""The last two are what aiohttp reads for a web socket."""
_OWN = ("localhost", "127.0.0.1", "::1")
"""What a cell serves for itself does not go through the host."""
_BUNDLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
)
"""Each is read by somebody who reads none of the others."""
_MANNERS = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "GIT_TERMINAL_PROMPT": "0"}
"""No question that nobody can answer, and no request that nobody asked for."""
_NO_METADATA = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
"""For boto3 and google-auth, which ask for a machine's credentials where code has none: a violation nobody meant."""
_METADATA = ("169.254.169.254", "metadata.google.internal")


def inside(rules: Iterable[Rule], placeholders: Mapping[str, str], certificates: str = "") -> Inside:
    """Return what a sandbox has inside that may reach what `rules` say; `placeholders` are the secrets of its cells."""
    named = {rule.host for rule in rules}
    own = ",".join(one for one in _OWN if one not in named)  # which is this machine's by its rule, then
    variables = dict.fromkeys(_PROXIES, PROXY) | {"NO_PROXY": own}
    variables |= {name.lower(): value for name, value in variables.items()}
    variables |= dict.fromkeys(_BUNDLES, BUNDLE) | _MANNERS
    if named.isdisjoint(_METADATA):
        variables |= _NO_METADATA
    return Inside(environment={**placeholders, **variables}, trust=BUNDLE, certificates=certificates)
