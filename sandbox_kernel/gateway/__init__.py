"""What the host does for the connections of cells: it decides, dials and relays, and looks at what it may look at.

Nothing of this is imported unless a setting asks for it.

- `exchange`: The seams: a connection as four methods, an HTTP request and its answer, and who looks at them.
- `environment`: The variables by which the libraries of a cell find the way out.
- `value`: The value of a secret: read once on the host, and shown to nobody.
- `placeholder`: What cells have in its place.
- `codings`: Finds values in a text, also in codings that lie in each other.
- `scrub`: Takes values out of answers, in pieces or whole.
- `buffered`: A connection of which more was read than was wanted.
- `proxy_head`: Heads of requests, read strictly and taken apart.
- `answers`: What a cell is answered in the place of a host.
- `http_sides`: The two sides of one HTTP request, each parsed and written anew.
- `http_relay`: HTTP requests of one connection, each decided anew.
- `client_hello`: The first word of TLS: which server a client names.
- `tunnel`: What a cell and a host say to each other over TLS, once its first word was looked at.
- `sockets`: A TCP connection of the host's.
- `lookup`: Names into addresses, and which of them are this machine's.
- `operator_proxy`: The proxy through which the host itself has to go.
- `dial`: The way to a host: one resolution, every address checked, the checked addresses dialled.
- `limits`: What connections may use, and what they used.
- `egress`: The way out for the cells of one session.
- `unpacking`: Bodies in gzip and deflate, unpacked in bounded memory.
- `substitution`: One exchange with the host of secrets: values into the request, and out of the answer.
- `authority`: A certificate authority for one session, of the hosts of its secrets.
- `tls`: TLS over any connection, towards a cell and towards a host.
- `secrets`: What a session knows of its secrets.
- `tool_types`: Types of a signature, and whether JSON is of them.
- `tool_parameters`: Their parameters, as cells see them.
- `tools`: What a caller lets its cells call, and within which limits.
- `tool_reading`: What comes on a connection for tools.
- `tool_calls`: The calls of one session's tools.
- `switch`: Several services behind the one port.
- `requirements`: Requirements of a user's, read by us: names, versions, hashes, and wheels in files.
- `pip_process`: pip as a process: options, variables, bounds.
- `resolver`: Which versions of which packages.
- `wheels`: Wheels for an image, fetched on the host.
- `wheel_check`: What is in a wheel, looked at before it goes into a sandbox.
- `package_rules`: Which packages cells may ask for.
- `packages`: Packages for a session that runs: chosen, fetched, checked.
- `installing`: Their way into one session.
- `opening`: The way out of one session, made before its sandbox is.
"""
