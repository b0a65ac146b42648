"""What process 1 has for further agents. Shipped as source with the first, as a part of `container`.

- `nested_agents`: Further agents of one sandbox, each with a kernel of its own.
"""
