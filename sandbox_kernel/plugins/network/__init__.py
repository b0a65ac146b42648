"""The network of cells, and secrets: the host decides, dials and relays, and looks at what it may look at.

The rules are the package `policy`, and `inside` has what a kernel runs. Nothing of this is imported unless a setting
asks for it.

- `plugin`: What this plugin adds.
- `settings`: How the network is written: rules, where secrets are found, and the host's own proxy.
- `codes`: Why a connection, a request or an answer is refused.
- `preparation`: What one session's sandboxes have of the network, and what serves their connections.
- `reporter`: What is said of a connection: to the audit, to the person, to the caller.
- `diagnosis`: What the settings of the network name, and whether it is there.
- `exchange`: The seams: a connection as four methods, an HTTP request and its answer, and who looks at them.
- `value`: The value of a secret: read once on the host, and shown to nobody.
- `codings`: Finds values in a text, also in codings that lie in each other.
- `scrub`: Takes values out of answers, in pieces or whole.
- `buffered`: A connection of which more was read than was wanted.
- `proxy_head`: Heads of requests, read strictly and taken apart.
- `answers`: What a cell is answered in the place of a host.
- `http_sides`: The two sides of one HTTP request, each parsed and written anew.
- `http_relay`: HTTP requests of one connection, each decided anew.
- `client_hello`: The first word of TLS: which server a client names.
- `lookup`: Names into addresses, and which of them are this machine's.
- `operator_proxy`: The proxy through which the host itself has to go.
- `dial`: The way to a host: one resolution, every address checked, the checked addresses dialled.
- `limits`: What connections may use, and what they used.
- `egress`: The connections of one session's cells into the network.
- `substitution`: One exchange with the host of secrets: values into the request, and out of the answer.
- `authority`: A certificate authority for one session, of the hosts of its secrets.
- `tls`: TLS over any connection, towards a cell and towards a host.
- `secrets`: What a session knows of its secrets.
"""
