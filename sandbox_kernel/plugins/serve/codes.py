"""The codes of this plugin: what the server refuses, of its clients and at its start."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_SERVER = "See docs/serve.md on a server that others reach."
_WAIT = "Wait for one of them to end."
_OFFER = "docs/serve.md lists what the server offers."


@unique
class ServeCode(Code):
    """What `sandbox-kernel serve` refuses, of its clients and at its start."""

    SERVE_EXPOSED = "failure", "the server would be open to others", _SERVER
    SERVE_TOKENS_UNFIT = "failure", "the token file cannot be used", _SERVER
    SERVE_RUNS_ALREADY = (
        "failure",
        "another server has these sandboxes",
        "End the other server, or name another token file.",
    )
    TOKEN_UNKNOWN = "failure", "the request has no token of this server", "Set the client's key (docs/serve.md)."
    NO_SUCH_SANDBOX = "failure", "the sandbox was not found", "Create one, or connect to one of your own."
    PORT_NOT_SERVED = "failure", "the sandbox is running but port is not open", _OFFER
    TEMPLATE_UNKNOWN = "failure", "there is no such template", _OFFER
    NOT_OFFERED = "failure", "the server does not offer that", _OFFER
    REQUEST_IMPROPER = "failure", "the request is not as the protocol has it", _OFFER
    BODY_TOO_LARGE = "limit", "the body of the request is too large", "Send less at once."
    CONNECTIONS_OF_USER = "limit", "the limit of connections with requests under way is reached", "Close one."
    SANDBOXES_OF_TENANT = "limit", "too many sandboxes at once", "Kill one."
    CALLS_OF_SANDBOX = "limit", "too many calls run or wait in the sandbox", _WAIT
    FILE_NOT_KEPT = "failure", "the file is not kept, or not any more", "Send it again."
    NOT_THERE = "failure", "there is no such thing in the sandbox", "List what there is."
    REPLICA_SILENT = "failure", "another server does not say how many sandboxes you have there", "Try again soon."
    PROGRAM_UNKNOWN = "failure", "no program waits for that", "Run it again."
    REQUESTS_OF_TENANT = "limit", "too many requests of one user are under way", _WAIT
