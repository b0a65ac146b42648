"""The codes of the network and of secrets: why a connection of a cell, a request or an answer is refused."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_SPELLING = "Write the whole name (or xn--), an address as four decimal numbers, or IPv6 in brackets."
_INSIDE = "Nothing: this is the sandbox itself. For the host's own 127.0.0.1, add a rule."
_PORT = "Write the port as a number behind a colon."
_RULE = "If the code is meant to reach it, add the rule to the setting network."
_RESOLVE = "Check the name, and what the host resolves it to."
_CLIENT = "Use a client that names the same host in the tunnel, the Host header and TLS, without ECH."
_PROXY = "Use a client that speaks HTTP/1.1 to a proxy: absolute addresses for http, CONNECT for TLS (https, wss)."
_PLAIN = "Use another client, or check its headers."
_LATER = "Try again later, and see whether the host can reach it."
_FEWER = "Do it in parts or with fewer connections, or raise the setting."
_HOST = "Ask for the whole answer, in a form that can be read: a part or another form may hide the secret."


@unique
class NetworkCode(Code):
    """Why a connection or a request was not let out."""

    # --- how a host is written ---
    HOST_EMPTY = "violation", "no host is named", _SPELLING
    HOST_TOO_LONG = "violation", "the name of a host is longer than 253 characters", _SPELLING
    HOST_CHARACTER = "violation", "the host {host} has {what} in it", _SPELLING
    HOST_LABEL = "violation", "the host {host} has a label that {why}", _SPELLING
    HOST_ONE_LABEL = "violation", "the host {host} has one label, and means another host on each machine", _SPELLING
    HOST_ADDRESS = "violation", "the host {host} is no address in its plain form", _SPELLING
    HOST_IDNA = "violation", "the host {host} is no proper international name", _SPELLING
    HOST_INSIDE = "violation", "{host} is the sandbox itself, and no host outside", _INSIDE
    HOST_SPECIAL = "violation", "{host} ends with .{suffix}, which has no addresses", _SPELLING
    PORT_IMPROPER = "violation", "the port of {host} is no plain number from 1 to 65535", _PORT
    PORT_MISSING = "violation", "no port is named for {host}", _PORT

    # --- what the rules say ---
    HOST_NOT_ALLOWED = "violation", "{host} is no allowed host; the rule for it would be {rule}", _RULE
    ADDRESS_NOT_NAMED = "violation", "{host} is {what}, and no rule names it; the rule for it would be {rule}", _RULE
    PORT_NOT_ALLOWED = "violation", "{host} is allowed, but not its port {port}; the rule would be {rule}", _RULE
    METHOD_NOT_ALLOWED = "violation", "{host} is allowed, but not for {method}; the rule would be {rule}", _RULE

    # --- where a name leads ---
    NO_ADDRESS = "notice", "{host} has no address", _RESOLVE
    ADDRESS_NOT_PUBLIC = (
        "violation",
        "{host} leads to {address}, {what}; it is dialled only with a rule for that very address: {rule}",
        _RULE,
    )
    ADDRESS_DISGUISED = (
        "violation",
        "{host} leads to {address}, which is never dialled in this form: it is {what}",
        _RESOLVE,
    )
    METADATA_SERVICE = (
        "violation",
        "{host} is a metadata service, which hands out credentials of the machine",
        "Nothing: only a rule for its very name or address lets it pass.",
    )

    # --- what a client says later ---
    SERVER_NAME_MISSING = "violation", "TLS to {host} names no server", _CLIENT
    SERVER_NAME_OTHER = "violation", "TLS to {host} names another server", _CLIENT
    HOST_HEADER_OTHER = "violation", "a request to {host} has the Host header of another", _CLIENT
    SERVER_NAME_HIDDEN = "violation", "TLS names a server in an encrypted hello (ECH), which no rule can check", _CLIENT
    NOT_TLS = "violation", "a tunnel carries TLS and nothing else", _PROXY
    HELLO_IMPROPER = "violation", "the first message of TLS {what}", _CLIENT

    # --- how a client asks ---
    NOT_HTTP = "violation", "the way out is an HTTP proxy, and this is no HTTP", _PROXY
    HTTP_VERSION = "violation", "the proxy does not speak HTTP/{version}", _PROXY
    HEAD_IMPROPER = "violation", "the head of a request {what}", _PLAIN
    HEAD_TOO_LARGE = "limit", "the head of a request is larger than {limit} bytes", _PLAIN
    HEAD_TOO_MANY = "limit", "a request has more than {limit} headers", _PLAIN
    HEAD_TOO_SLOW = "limit", "the head of a request took longer than {limit} s", _PLAIN
    LENGTH_AMBIGUOUS = "violation", "a request gives its body's length in more than one way", _PLAIN
    BODY_IMPROPER = "violation", "the body of a request is not as its head says", _PLAIN
    TARGET_IMPROPER = "violation", "a request {what}", _PROXY
    SCHEME_OTHER = "violation", "a request for {scheme} needs a tunnel (CONNECT)", _PROXY
    UPGRADE_REFUSED = "violation", "a plain connection cannot change to another protocol", _PROXY

    # --- the way to a host ---
    CONNECTED = "notice", "a connection to {host}, port {port}", "Nothing: it was allowed."
    LOOKUP_FAILED = "notice", "{host} cannot be looked up: {why}", _LATER
    LOOKUP_SLOW = "limit", "to look up {host} took longer than {limit} s", _LATER
    DIAL_FAILED = "notice", "{host} cannot be reached at port {port}: {why}", _LATER
    DIAL_SLOW = "limit", "to connect to {host} took longer than {limit} s", _LATER
    PROXY_FAILED = "notice", "the host's proxy opens no connection: {why}", "Check the setting network_proxy."
    HOST_BROKE = "notice", "{host} ended the connection before it answered", _LATER
    ANSWER_IMPROPER = "notice", "the answer of {host} is no proper HTTP", _LATER

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
        "{host} is the host of a secret, and plain HTTP to it can be read",
        "Write https:// in place of http://.",
    )
    SECRET_METHOD = "violation", "the method {method} has {host} send the secret back", "Use another method."
    SECRET_ANSWER_IN_PARTS = (
        "violation",
        "{host} answered with a part (status {status}), in which a secret may be cut in two",
        _HOST,
    )
    SECRET_CODING_UNKNOWN = (
        "violation",
        "{host} answered in the coding {coding}, which cannot be searched for its secret",
        _HOST,
    )
    SECRET_CODING_BROKEN = "violation", "the answer of {host} is not in the coding that it names", _HOST
    SECRET_CODING_EXPANDS = "limit", "the answer of {host} grows more than {limit} times when it is unpacked", _HOST
    SECRET_ANSWER_DENSE = "limit", "an answer has more than {limit} nested codings, or is too dense to search", _HOST
    SECRET_CELL_TLS = (
        "notice",
        "the client in the cell did not accept the sandbox's TLS for {host}: {why}",
        "Have the client trust the certificates in SSL_CERT_FILE.",
    )
    SECRET_HOST_TLS = (
        "violation",
        "{host} could not show that it is the host of the secret: {why}",
        "Check its certificate, and those that this machine trusts.",
    )
    SECRET_TLS_SLOW = "limit", "TLS with {who} took longer than {limit} s", "Try again."
