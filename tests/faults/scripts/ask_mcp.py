"""Asks a server of ``stash mcp`` one thing, and prints the answer: ask_mcp.py TOOL ARGUMENTS (JSON)."""

import json
import os
import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def ask(tool, arguments):
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "stash", "mcp"], env=dict(os.environ)
    )
    async with Client(stdio_client(server)) as client:
        return await client.call_tool(tool, arguments)


result = anyio.run(ask, sys.argv[1], json.loads(sys.argv[2]))
print(result.content[0].text)
sys.exit(2 if result.is_error else 0)
