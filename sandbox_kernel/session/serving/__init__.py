"""A kernel towards its clients: what it answers itself, whatever carries its messages.

- `large_outputs`: What a page does not bear: a file of scratch, and its end shown.
- `kernel_info`: What a kernel says of itself and of its sandbox: language, limits, state.
- `shown_behaviour`: What the cells of a kernel did that matters, for whoever shows how its sandbox stands.
- `server`: One for all transports: what it answers itself, and what goes to its session.
"""
