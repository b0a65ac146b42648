"""How the way out is written: rules, where secrets are found, and the host's own proxy.

Imports the rules when there is one to read: a start without a network does not wait for them. No error of this module
repeats what was given for a secret, since somebody may have given its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...config.forms import Form, is_nothing, number, path_from_root, refuse, seconds, size, texts_of
from ...config.setting import Setting, rows, setting
from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from ...core.model import KIB, Settings

MAX_RULES = 200
MAX_SECRETS = 32
MAX_HOSTS = 32
"""Of one secret."""

_KINDS = ("*", "all", "any", "bridge", "default", "false", "full", "host", "internet", "no", "off", "on", "true", "yes")
"""What people write who expect a switch. None of it is a host that anybody means."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TAKEN = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|TERM|PWD|IFS|ENV|TMPDIR|LANG|LC_\w+|LD_\w+|PYTHON\w*|PYDEVD_\w+|(OMP|MKL|OPENBLAS)_\w+"
    r"|NUMEXPR_\w+|POLARS_\w+|IPYTHON\w*|JUPYTER\w*|BASH_\w+|GIT_\w+|PIP_\w+|SSL_CERT_\w+|(REQUESTS|CURL|AWS)_CA_BUNDLE"
    r"|AWS_EC2_METADATA_DISABLED|NO_GCE_CHECK|NUMBA_NUM_THREADS|NODE_\w+|\w*_PROXY)",
    re.IGNORECASE,
)
"""Variables that have a meaning in the sandbox already, or make a program obey."""
_HEADER = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9-]{0,63}): ?(?P<value>[\x21-\x7e][\x20-\x7e]{0,255})")
_NO_HEADERS = re.compile(
    r"host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|content-.*|expect|proxy-.*|accept-encoding|range",
    re.IGNORECASE,
)
"""Headers that say how a request is read, and not who asks."""
_SECRET = re.compile(
    r"(?P<name>[^=\s]+)=(?P<kind>env|file):(?P<place>.+?)@(?P<hosts>[^@\s]+)(?:\s+(?P<header>[A-Za-z0-9-]+:.*))?"
)
_PROXY = re.compile(r"http://(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?")
FORM_OF_ONE = "NAME=env:VARIABLE@HOST or NAME=file:PATH@HOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """Where the value of a secret is found on the host, and who is sent it; never the value itself."""

    name: str
    """Of the variable in which cells have a placeholder."""
    kind: Literal["env", "file"]
    place: str
    """The name of a variable of the host's process, or the absolute path of a file."""
    hosts: tuple[str, ...]
    """As the rules of `network` write them: host, host:port or *.host."""
    header: str | None = None
    """A header to be set, such as "Authorization: Bearer {}"; None puts the value where the placeholder stands."""


# --- network -------------------------------------------------------------------------------------------------------


def _rules(name: str, raw: object) -> tuple[str, ...]:
    texts = texts_of(name, raw, "rules")
    if len(texts) > MAX_RULES:
        raise refuse(name, len(texts), f"{name} has too many rules", limit=str(MAX_RULES))
    return tuple(dict.fromkeys(_rule(name, text) for text in texts))


def _rule(name: str, text: str) -> str:
    """Return a rule as it is written plainly."""
    if text.lower() in _KINDS:
        raise refuse(name, text, f"{name} is a list of hosts, such as api.example.org, and not a kind of network")
    from .policy import BadRule, HostRule

    try:
        return HostRule.parse(text).text
    except BadRule as error:
        raise refuse(name, text, f"{name} has a rule that is none: {error.why}") from None


# --- secrets -------------------------------------------------------------------------------------------------------


def _secrets(name: str, raw: object) -> tuple[SecretSource, ...]:
    found = tuple(_one_secret(name, key, about) for key, about in _given(name, raw))
    if len(found) > MAX_SECRETS:
        raise refuse(name, len(found), f"{name} are too many", limit=str(MAX_SECRETS))
    names = [secret.name for secret in found]
    if twice := {one for one in names if names.count(one) > 1}:
        raise refuse(name, min(twice), f"{name} name the same variable twice")
    return found


def _given(name: str, raw: object) -> Iterable[tuple[object, object]]:
    """Yield each name with what is said of it, whether it was a table or the words of a command line."""
    if isinstance(raw, Mapping):
        yield from raw.items()
        return
    words = [] if raw is None else [raw] if isinstance(raw, str) else raw
    if not isinstance(words, Iterable) or isinstance(words, bytes):
        raise _wrong(name, "is neither a table nor " + FORM_OF_ONE)
    for word in words:
        if not isinstance(word, str):
            raise _wrong(name, "is neither a table nor " + FORM_OF_ONE)
        if is_nothing(word):
            continue
        match = _SECRET.fullmatch(word.strip())
        if match is None:
            raise _wrong(name, f"is not {FORM_OF_ONE}, where the value is found; a value itself is never given")
        about = {match["kind"]: match["place"], "hosts": match["hosts"]}
        yield match["name"], about | ({"header": match["header"]} if match["header"] else {})


def _one_secret(name: str, key: object, about: object) -> SecretSource:
    if not isinstance(key, str) or not _NAME.fullmatch(key):
        raise _wrong(name, "has a name that no variable can have")
    if _TAKEN.fullmatch(key):
        raise _wrong(f"{name}.{key}", "is the name of a variable that has another meaning in the sandbox")
    where = f"{name}.{key}"
    if not isinstance(about, Mapping) or len({"env", "file"} & set(about)) != 1:
        raise _wrong(where, 'is not a table with either "env" or "file": the value itself is never given')
    if unknown := set(about) - {"env", "file", "hosts", "header"}:
        raise _wrong(where, f"has more than env or file, hosts and header: {len(unknown)} more")
    kind: Literal["env", "file"] = "env" if "env" in about else "file"
    place = _variable(where, about[kind]) if kind == "env" else _file(where, about[kind])
    hosts = tuple(dict.fromkeys(_hosts(where, about.get("hosts"))))
    return SecretSource(name=key, kind=kind, place=place, hosts=hosts, header=_header(where, about.get("header")))


def _variable(where: str, raw: object) -> str:
    if not isinstance(raw, str) or not _NAME.fullmatch(raw):
        raise _wrong(where, "has an env that is not the name of a variable")
    return raw


def _file(where: str, raw: object) -> str:
    if not (found := path_from_root(raw)):
        raise _wrong(where, "has a file that is not a path from the root, or from ~, on")
    return found


def _hosts(where: str, raw: object) -> list[str]:
    try:
        hosts = texts_of(where, raw, "hosts")
        if not 0 < len(hosts) <= MAX_HOSTS:
            raise _wrong(where, f"has no list of 1 to {MAX_HOSTS} hosts")
        if any(" " in host for host in hosts):
            raise _wrong(where, "has a host with a space in it, or with a method")
        found = [_rule(where, host) for host in hosts]
    except ConfigurationError as error:
        if error.setting == "secrets":
            raise
        raise _wrong(where, "has a host that is none; write it as a rule of network, without a method") from None
    from .policy import HostRule

    rules = [HostRule.parse(text) for text in found]
    if any(rule.wildcard for rule in rules):
        raise _wrong(where, "is for a wildcard, and a host below it may be somebody else's; name each of them")
    if any(rule.address is not None for rule in rules):
        raise _wrong(where, "is for an address; name the host that its certificate names")
    return found


def check(settings: Settings) -> None:
    """Raise `ConfigurationError` for a secret's host to which no rule allows TLS: a secret allows no connection."""
    network = settings.of(NetworkSettings)
    if not network.secrets:
        return
    from .policy import HostRule, NetworkPolicy, RefusedConnection

    policy = NetworkPolicy(network.network)
    for secret in network.secrets:
        for rule in map(HostRule.parse, secret.hosts):
            try:
                policy.allow(policy.target(rule.host, rule.port, default_port=443), None)
            except RefusedConnection as refused:
                what = f"secrets.{secret.name} is for {rule.text}, and a secret allows no connection by itself"
                raise ConfigurationError(
                    EndCode.WRONG_SETTING,
                    what,
                    limit=f"network has the rule {refused.rule}",
                    value="no such rule",
                    setting="network",
                ) from None


def _header(where: str, raw: object) -> str | None:
    if raw is None or raw == "":
        return None
    match = _HEADER.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if match is None or match["value"].count("{}") != 1:
        raise _wrong(where, 'has a header that is not like "Authorization: Bearer {}"')
    if _NO_HEADERS.fullmatch(match["name"]):
        raise _wrong(where, "has a header that says how a request is read, and not who asks")
    return f"{match['name']}: {match['value']}"


def _wrong(where: str, what: str) -> ConfigurationError:
    """Return an error that does not repeat what was given."""
    return ConfigurationError(EndCode.WRONG_SETTING, f"{where} {what}", value="not shown", setting="secrets")


def _written(name: str, raw: object) -> list[str]:
    """Return each secret as a command line has it. Raises `ConfigurationError` for one that it cannot hold."""
    words: list[str] = []
    for secret in _secrets(name, raw):
        words.append(f"{secret.name}={secret.kind}:{secret.place}@{','.join(secret.hosts)}")
        if secret.header is not None:
            words[-1] += f" {secret.header}"
        if _secrets(name, words[-1]) != (secret,):
            raise _wrong(f"{name}.{secret.name}", "cannot be written into one argument; use a config file")
    return words or ["none"]  # which is more than nothing at all: a config file may have some


# --- the host's own way out ------------------------------------------------------------------------------------------


def _proxy(name: str, raw: object) -> str | None:
    if is_nothing(raw):
        return None
    text = raw.strip() if isinstance(raw, str) else ""
    if text.lower() == "environment":
        return "environment"
    if "@" in text:
        what = f"{name} is no place for a user and a password; use `environment`, whose variables may have them"
        raise ConfigurationError(EndCode.WRONG_SETTING, what, value="not shown", setting=name)
    if not _PROXY.fullmatch(text) or not 0 < int(text.rstrip("/").rpartition(":")[2]) < 1 << 16:
        raise refuse(name, raw, f"{name} is neither the address of a proxy, http://HOST:PORT, nor environment")
    return text.rstrip("/")


def _certificates(name: str, raw: object) -> str | None:
    if is_nothing(raw):
        return None
    if not (found := path_from_root(raw)):
        raise refuse(name, raw, f"{name} is not the path of a file from the root, or from ~, on")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """What cells may reach, with which secrets, and the host's own way there."""

    network: tuple[str, ...] = setting(
        (),
        Form(
            _rules,
            "rules, with commas or as a list: `api.example.org, *.example.net:8443`",
            "RULE",
            adds_up=True,
            written=lambda name, raw: list(_rules(name, raw)) or ["none"],
            types="str | Sequence[str]",
        ),
        "The hosts that cells may reach: `host`, `host:port`, or `*.host` for all names below it. `GET` before a "
        "rule allows plain HTTP. An address is allowed only if a rule contains it. The host makes the connections."
        " Without rules there is no network.",
        "nothing",
        scope="caller",
    )
    secrets: tuple[SecretSource, ...] = setting(
        (),
        Form(
            _secrets,
            "`NAME=env:VARIABLE@HOST`, `NAME=file:PATH@HOST`, a header after it: `Authorization: Bearer {}`; or a "
            "table",
            "SECRET",
            adds_up=True,
            written=_written,
            types="str | Sequence[str] | Mapping[str, Mapping[str, object]]",
        ),
        "Secrets that the host inserts into requests. Cells see a placeholder. Each entry says where the value is "
        "found, for which hosts it is, and optionally in which header. It never contains the value, and it allows "
        "no connection.",
        singular="secret",
        scope="caller",
    )
    network_proxy: str | None = setting(
        None,
        Form(_proxy, "`http://HOST:PORT` or `environment`"),
        "The HTTP proxy that the host must use itself. environment: the proxy in the variables HTTPS_PROXY, "
        "NO_PROXY, ... of the kernel process.",
        scope="process",
    )
    """None is none, "environment" what the variables say, else the address of a proxy."""
    network_certificates: str | None = setting(
        None,
        Form(_certificates, "a file", "FILE"),
        "A PEM file of certificate authorities that cells trust in addition to the public ones. The host trusts "
        "them too, for connections with a secret.",
        scope="process",
    )

    def narrowed(self, hosts: Sequence[str]) -> NetworkSettings:
        """Return the same settings with what the rules allow of these hosts, and with the secrets that are for them.

        Raises `LookupError` with the first host that no rule reaches, or that is one too many.
        """
        if len(hosts) > MAX_RULES:
            raise LookupError(hosts[MAX_RULES])
        from .policy import BadRule, HostRule, NetworkPolicy, RefusedConnection

        policy, rules = NetworkPolicy(self.network), dict[str, None]()
        for host in hosts:
            try:
                found = policy.within(host)
            except BadRule:
                found = ()
            rules |= dict.fromkeys(rule.text for rule in found)
            if not found or len(rules) > MAX_RULES:
                raise LookupError(host)
        policy = NetworkPolicy(tuple(rules))

        def is_reached(host: str) -> bool:
            rule = HostRule.parse(host)
            try:
                policy.allow(policy.target(rule.host, rule.port, default_port=443), None)
            except RefusedConnection:
                return False
            return True

        left = (replace(one, hosts=tuple(filter(is_reached, one.hosts))) for one in self.secrets)
        return replace(self, network=tuple(rules), secrets=tuple(one for one in left if one.hosts))


GROUP = "Network"
_OWN = rows(NetworkSettings)
SETTINGS = (
    *_OWN[:2],
    Setting(
        "network_connections",
        number(int, 1, 1000),
        "Connections that the cells of one session may have open at the same time.",
    ),
    Setting(
        "network_bytes",
        size(64 * KIB),
        "Bytes that the connections of one cell may receive, and the same number again that they may send. A "
        "session may use ten times as much.",
    ),
    Setting(
        "network_timeout",
        seconds(1, 3600),
        "How long a connection may take to open, and how long it may stay silent. The clock of the cell keeps running.",
    ),
    *_OWN[2:],
)
