"""An entry point: the kernel process that a front end starts.

- `pipe_holder`: A process that holds the pipe for the seconds between two kernel processes of a restart.
- `handover`: A container parked by one kernel process and taken by the next one.
- `peer_check`: Who may connect to the kernel's sockets: this user's processes, judged before their first frame.
- `kept_ports`: The sockets on which clients knock, open from one kernel process to the next.
- `front_sockets`: The five ZMQ sockets: binding, reading from asyncio, and signatures, of which none counts twice.
- `head_start`: The first container, asked for before anything else is imported.
- `proxy`: The kernel process that a front end starts, and the requests that it holds back until outputs can be heard.
"""
