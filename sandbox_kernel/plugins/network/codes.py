"""The codes of the network and of secrets: why a connection of a cell, a request or an answer is refused."""

from __future__ import annotations

from enum import unique

from ...core.code import Code

_RULE = "Add the rule that is named to the setting network, if the code is meant to reach it."
_SPELLING = "Write the host as a plain name, an address as four decimal numbers, or IPv6 in brackets."
_INSIDE = "Nothing: inside the sandbox it is the sandbox itself. The host's own address is 127.0.0.1, by a rule for it."
_PROXY = "Use a client that speaks HTTP/1.1 to a proxy: absolute addresses for http, and CONNECT for all else."
_PLAIN = "Use another client, or see what it adds to its requests."
_FEWER = "Do it in parts or with fewer connections, or raise the setting."
_LATER = "Try again later, and see whether the host can reach it."
_HOST = "See what the host sends: what cannot be looked through may hold the secret."
_CLIENT = "Use a client that says the same host everywhere: in the tunnel, in the Host header and in TLS."


@unique
class NetworkCode(Code):
    """Why a connection or a request was not let out."""

    # --- how a host is written ---
    HOST_EMPTY = "violation", "no host is named", _SPELLING
    HOST_TOO_LONG = "violation", "the name of a host is longer than 253 characters", _SPELLING
    HOST_CHARACTER = "violation", "the host {host} has {what} in it", _SPELLING
    HOST_LABEL = "violation", "the host {host} has a label that {why}", _SPELLING
    HOST_ONE_LABEL = (
        "violation",
        "the host {host} is a name of one label, which means another host on each machine",
        "Write the whole name, such as db.example.org.",
    )
    HOST_ADDRESS = "violation", "the host {host} is no address in its plain form", _SPELLING
    HOST_IDNA = (
        "violation",
        "the host {host} is no proper international name",
        "Write it as it stands in the domain name system, with xn--.",
    )
    HOST_INSIDE = "violation", "{host} is the sandbox itself, and no host outside", _INSIDE
    HOST_SPECIAL = (
        "violation",
        "{host} is a name that no domain name system answers for: it ends with .{suffix}",
        "Use a name of the domain name system, or an address.",
    )
    PORT_IMPROPER = "violation", "the port of {host} is no plain number from 1 to 65535", "Write the port as a number."
    PORT_MISSING = "violation", "no port is named for {host}", "Write the port behind a colon."

    # --- what the rules say ---
    HOST_NOT_ALLOWED = "violation", "{host} is no allowed host; the rule for it would be {rule}", _RULE
    ADDRESS_NOT_NAMED = "violation", "{host} is {what}, and no rule names it; the rule for it would be {rule}", _RULE
    PORT_NOT_ALLOWED = "violation", "{host} is allowed, but not its port {port}; the rule would be {rule}", _RULE
    METHOD_NOT_ALLOWED = "violation", "{host} is allowed, but not for {method}; the rule would be {rule}", _RULE

    # --- where a name leads ---
    NO_ADDRESS = (
        "notice",
        "{host} has no address",
        "See whether the name is right, and whether the host can resolve it.",
    )
    ADDRESS_NOT_PUBLIC = (
        "violation",
        "{host} leads to {address}, {what}; it is dialled only with a rule for that very address: {rule}",
        _RULE,
    )
    ADDRESS_DISGUISED = (
        "violation",
        "{host} leads to {address}, which is never dialled in this form: it is {what}",
        "See to what the name resolves: an IPv4 address has to be given as one, and no address with a zone.",
    )
    METADATA_SERVICE = (
        "violation",
        "{host} is a metadata service, which hands out credentials of the machine",
        "Nothing: code in a sandbox has no business there. Only a rule for its very name or address lets it pass.",
    )

    # --- what a client says later ---
    SERVER_NAME_MISSING = "violation", "TLS to {host} names no server", _CLIENT
    SERVER_NAME_OTHER = "violation", "TLS to {host} names another server", _CLIENT
    HOST_HEADER_OTHER = "violation", "a request to {host} has the Host header of another", _CLIENT
    SERVER_NAME_HIDDEN = (
        "violation",
        "TLS names a server in an encrypted part of its hello, which nobody can hold against the rules",
        "Switch off encrypted hellos (ECH) in the client.",
    )
    NOT_TLS = (
        "violation",
        "what came through a tunnel is no TLS, and a tunnel carries nothing else",
        "Use https, or plain http without CONNECT.",
    )
    HELLO_IMPROPER = "violation", "the first word of TLS {what}", _CLIENT

    # --- how a client asks ---
    NOT_HTTP = "violation", "what came is no HTTP: the way out is an HTTP proxy", _PROXY
    HTTP_VERSION = "violation", "the proxy does not speak HTTP/{version}", _PROXY
    HEAD_IMPROPER = "violation", "the head of a request {what}", _PLAIN
    HEAD_TOO_LARGE = "limit", "the head of a request is larger than {limit} bytes", _PLAIN
    HEAD_TOO_MANY = "limit", "a request has more than {limit} headers", _PLAIN
    HEAD_TOO_SLOW = "limit", "the head of a request took longer than {limit} s", _PLAIN
    LENGTH_AMBIGUOUS = "violation", "a request says the length of its body in more than one way", _PLAIN
    BODY_IMPROPER = "violation", "the body of a request is not as its head says", _PLAIN
    TARGET_IMPROPER = "violation", "a request {what}", _PROXY
    SCHEME_OTHER = "violation", "a request for {scheme} has to come through a tunnel (CONNECT)", _PROXY
    UPGRADE_REFUSED = (
        "violation",
        "a plain connection cannot change to another protocol",
        "Use the protocol over TLS, such as wss for web sockets.",
    )

    # --- the way to a host ---
    CONNECTED = "notice", "a connection to {host}, port {port}", "Nothing: it was allowed."
    LOOKUP_FAILED = "notice", "{host} cannot be looked up: {why}", _LATER
    LOOKUP_SLOW = "limit", "to look up {host} took longer than {limit} s", _LATER
    DIAL_FAILED = "notice", "{host} cannot be reached at port {port}: {why}", _LATER
    DIAL_SLOW = "limit", "to connect to {host} took longer than {limit} s", _LATER
    PROXY_FAILED = "notice", "the proxy of the host opens no connection: {why}", "See to the setting network_proxy."
    HOST_BROKE = "notice", "{host} ended the connection before it answered", _LATER
    ANSWER_IMPROPER = "notice", "the answer of {host} is not as HTTP has it", "See what the host answers to others."

    # --- limits ---
    TOO_MANY_CONNECTIONS = "limit", "the cells have {limit} connections open, and no more are served", _FEWER
    CELL_TRAFFIC = "limit", "the connections of one cell carry {limit} bytes each way at most", _FEWER
    SESSION_TRAFFIC = "limit", "the connections of one session carry {limit} bytes each way at most", _FEWER
    CONNECTION_SILENT = "limit", "a connection carried nothing for {limit} s", _FEWER
    CONNECTION_TOO_LONG = "limit", "a connection lasted for {limit} s", _FEWER


@unique
class SecretCode(Code):
    """Why an exchange with the host of a secret was refused."""

    SECRET_NEEDS_TLS = (
        "violation",
        "{host} is the host of a secret, and plain HTTP to it can be read and changed on its way",
        "Write https:// in place of http://.",
    )
    SECRET_METHOD = (
        "violation",
        "the method {method} has {host} send back what it was sent, with the secret in it",
        "Use another method.",
    )
    SECRET_ANSWER_IN_PARTS = (
        "violation",
        "{host} answered with a part of something (status {status}), in which a secret may be cut in two",
        "Ask for the whole.",
    )
    SECRET_CODING_UNKNOWN = (
        "violation",
        "{host} answered in the coding {coding}, which is not looked through for its secret",
        "Ask for another form; the host was asked for none of these.",
    )
    SECRET_CODING_BROKEN = "violation", "what {host} answered is not in the coding that it names", _HOST
    SECRET_CODING_EXPANDS = "limit", "what {host} answered grows more than {limit} times when it is unpacked", _HOST
    SECRET_ANSWER_DENSE = (
        "limit",
        "an answer with more codings in each other than the {limit} that are read, or too dense, may hold a secret",
        _HOST,
    )
    SECRET_CELL_TLS = (
        "notice",
        "the client in the cell did not take up TLS with the sandbox for {host}: {why}",
        "Let the client trust the certificates in the file that SSL_CERT_FILE names.",
    )
    SECRET_HOST_TLS = (
        "violation",
        "{host} could not show that it is the host of the secret: {why}",
        "See to its certificate, and to the certificates that this machine trusts.",
    )
    SECRET_TLS_SLOW = "limit", "TLS with {who} took longer than {limit} s", "Try again."
