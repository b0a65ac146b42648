"""The rules of the screen as data, a family a module.

- `rule`: What a rule is: a code, how much it weighs, and what it looks for.
- `process`: Processes and shells: what starts, ends or hides another program, and what gains its rights.
- `files`: Files outside of scratch: the system's, other users', and all that deletes, encrypts or exposes them.
- `network`: The network: what is asked, sent, opened, listened to, scanned or flooded, and where stolen data goes.
- `credentials`: Credentials, the environment, and what tells one machine from another.
- `persistence`: What stays or comes back: start files, schedules, accounts, changed packages, hooks and patches.
- `escape`: What leads out of the interpreter or the sandbox: native code, /proc, containers, frames and objects.
- `exhaustion`: Resources: loops and recursion without an end, memory, disk, processors, texts that unfold.
- `obfuscation`: Code that hides what it does: decoders before execution, composed names, odd letters, pickles.
- `miners`: Miners of currencies: their programs, their pools, and the search for hashes.
- `data`: Data: tables that are dropped, inputs that are deleted or overwritten, labels that are turned.
- `reading`: What cannot be read, and what is not on an operator's list.
"""
