"""What happened, in a form that cannot be bent unseen: the audit, its key, and signed receipts of runs.

- `hash_chain`: How a line is sealed: its number, what binds it to the lines before, and a code that needs the key.
- `keys`: The key: a file that only its owner reads, and what is derived from it.
- `locks`: A lock on a file among processes, waited for within a bound.
- `remembered_head`: A second memory of the last line, beside the key.
- `audit_file`: The file: one chain that several processes write, rotated by size.
- `audit`: The record of one session: a bounded line of JSON for each cell and each refusal.
- `verification`: The files of an audit: are lines as they were written, how far is it proven, how people see them.
- `receipt`: A signed statement of a run: in-toto in a DSSE envelope.
- `gate`: Whether a receipt is good enough for an operator's policy.
- `command`: `sandbox-kernel audit` and `sandbox-kernel receipt`.
- `settings`: The settings of the record.
- `codes`: The codes of the record.
- `plugin`: What this plugin adds.
"""
