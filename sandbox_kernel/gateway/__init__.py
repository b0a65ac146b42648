"""What the host does for the connections of cells: it decides, dials and relays, and looks at what it may look at.

Nothing of this is imported unless a setting asks for it.

- `exchange`: The seams: a connection as four methods, an HTTP request and its answer, and who looks at them.
- `environment`: The variables by which the libraries of a cell find the way out.
- `value`: The value of a secret: read once on the host, and shown to nobody.
- `placeholder`: What cells have in its place.
- `codings`: How a value may be written by a server that means no harm.
- `scrub`: Takes values out of answers, in pieces or whole.
"""
