"""The engine `wasm`: CPython in WebAssembly, on nothing but wheels. Experimental, and never taken by `auto`.

- `plugin`: What it adds.
- `codes`: Its codes.
- `settings`: Its settings.
- `versions`: Known faults of wasmtime, and the check of a version.
- `image`: What every guest begins from, and how it is read.
- `build`: Making that.
- `wide_integers`: What it changes in the guest's program, so that numpy's integers have 64 bits.
- `engine`: Starting a session's process, and what it is compared with.
- `host`: That process: it plays the agent's part.
- `template`: One that has loaded what each loads, from which the further ones of an owner are forked.
- `confine`: What it gives up before a guest runs in it.
- `machine`: One guest: a wasmtime store, its host functions and its memory.
- `checkpoints`: That memory as it was before, and the way back.
"""
