"""The requests of a session's front ends, from their arrival to the reply that each of them gets.

- `request_states`: The states of one request, and what may follow what.
- `queue`: Which requests are open, how far each has come, and which may be sent.
- `machine`: What happens goes in, and what has to be done comes out: no I/O, no timer, no clock.
- `host_words`: What the host itself says of a request.
- `driver`: Hears of what happens, and does what the machine commands: what others call.
"""
