"""Files of scratch for front ends that speak the Jupyter protocol. Without it, they are told that no plugin answers.

- `plugin`: What this plugin adds.
- `codes`: Why a file message was refused.
- `bounds`: What clients are told of the file messages.
- `file_messages`: Files of scratch over the control channel, chunk by chunk.
"""
