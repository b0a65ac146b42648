"""What is noticed while code runs, and what comes of it: rules as data, pure counting, and what is told to whom.

None of it is the wall. What it is told of may be incomplete.

- `plugin`: What this plugin adds.
- `settings`: How the monitor is written: a level or a file of rules, and where alerts are sent.
- `codes`: What the monitor notices while code runs.
- `behaviour_rules`: The table of rules, and how a level or an operator's table changes it.
- `ransomware`: Files that were given to a sandbox, and noise in their place, as ransomware leaves it.
- `call_trace`: A file of what was tried in a sandbox.
- `alerts`: Alerts on their way to the operator.
- `monitor`: The monitor of one session: events, samples of programs and processors, and counting for the rules.

Package: `inside` (what sees it in a sandbox).
"""
