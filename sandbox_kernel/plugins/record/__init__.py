"""What happened, in a form that cannot be bent unseen: the audit, its key, and signed receipts of runs.

- `chain`: How a line is sealed: its number, what binds it to the lines before, and a code that needs the key.
- `keys`: The key: a file that only its owner reads, and what is derived from it.
- `locks`: A lock on a file among processes, waited for within a bound.
- `tail_pin`: A second memory of the last line, beside the key.
- `ledger`: The file: one chain that several processes write, rotated by size.
- `audit`: One bounded line of JSON for each cell and each refusal, on its way into the file.
- `verifying`: Whether lines are as they were written, and how far that is proven.
- `receipt`: A signed statement of a run: in-toto in a DSSE envelope.
- `reading`: The files of an audit, what is said of them when they are verified, and how people see them.
- `service`: The record of one session: what it hears, and one line of every cell.
- `command`: `sandbox-kernel audit` and `sandbox-kernel receipt`.
- `settings`: The settings of the record.
- `codes`: The codes of the record.
- `plugin`: What this plugin adds.
"""
