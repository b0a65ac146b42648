"""The requests of a session's front ends, from their arrival to the reply that each of them gets.

- `request_states`: The states of one request, and what may follow what.
- `queue`: Which requests are open, how far each has come, and which may be sent.
- `time_limits`: How long a request may run, wait for a person, and be half done.
- `inbound`: What a kernel says: parsed, judged, and given to the request it belongs to.
- `outbound`: What goes to the front ends: the kernel's messages that may pass, and the host's own.
- `escalation`: The ends of a request from outside: interrupt, then a new kernel, then the end of the sandbox.
- `request_end`: The end of a request towards its front end: every request ends here, once.
- `scheduler`: What joins them, and what others call.
"""
