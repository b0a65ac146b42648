"""The widgets of ipywidgets: their comms, and what the state of each may hold. Without it, no comm passes.

It is made of the rules of `policy`, and as these without I/O and without a clock.

- `plugin`: What this plugin adds.
- `codes`: Why a widget was dropped, or a part of one removed.
- `trait_table`: The models of ipywidgets: module, view, and the rule of each trait; generated.
- `known_models`: The same as the policy uses it: what a message may say of its model.
- `trait_rules`: What a trait may hold: its type first, then what its view does with it.
- `views`: How many views a widget comes to, with all that is in it.
- `comms`: Comms: the widgets of ipywidgets, their states and bytes checked trait by trait.
"""
