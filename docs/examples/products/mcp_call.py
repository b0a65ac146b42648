"""Runs what stands on stdin by a tool of an MCP server: `python mcp_call.py TOOL ARGUMENT COMMAND...`. It needs mcp."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> int:
    tool, argument, command, *arguments = sys.argv[1:]
    server = StdioServerParameters(command=command, args=arguments)
    async with stdio_client(server) as ways, ClientSession(*ways) as session:
        await session.initialize()
        result = await session.call_tool(tool, {argument: sys.stdin.read()})
    for part in result.content:
        print(getattr(part, "text", part.type))
    return 1 if getattr(result, "isError", False) or getattr(result, "is_error", False) else 0


sys.exit(asyncio.run(main()))
