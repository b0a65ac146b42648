"""The network of cells, and secrets: the host decides, dials and relays, and looks at what it may look at.

The rules are the package `policy`, and `inside` has what a kernel runs. Nothing of this is imported unless a setting
asks for it.

- `plugin`: What this plugin adds.
- `settings`: How the network is written: rules, where secrets are found, and the host's own proxy.
- `codes`: Why a connection, a request or an answer is refused.
- `session_network`: What one session's sandboxes have of the network, and what serves their connections.
- `connection_reporter`: Reports of a connection: to the audit, to the person, to the caller.
- `interfaces`: Protocols: a connection as four methods, an HTTP request and its answer, and who looks at them.
- `secret_value`: The value of a secret: read once on the host, and shown to nobody.
- `secret_finder`: Finds values in a text, also in codings that lie in each other.
- `secret_scrubber`: Takes values out of answers, in pieces or whole.
- `buffered_connection`: A connection of which more was read than was wanted.
- `request_head`: Heads of requests, read strictly and taken apart.
- `error_responses`: What a cell is answered in the place of a host.
- `http_relay`: HTTP requests of one connection: each is decided, and both sides are parsed and written anew.
- `client_hello`: The first word of TLS: which server a client names.
- `dns_lookup`: Names into addresses, and which of them are this machine's.
- `operator_proxy`: The proxy through which the host itself has to go.
- `dial`: The way to a host: one resolution, every address checked, the checked addresses dialled.
- `traffic_limits`: What connections may use, and what they used.
- `egress`: The connections of one session's cells into the network.
- `tls`: TLS over any connection, towards a cell and towards a host, and a session's certificate authority.
- `secrets`: The secrets of a session: placeholders for cells, values in requests, and out of answers.
"""
