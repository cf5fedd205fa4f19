"""``stash mcp``: the tools, registered with the protocol's own SDK, on standard input and output."""

from __future__ import annotations

import json
from typing import Any

from stash.core.errors import StashError, UserError, error_document, one_line
from stash.core.imports import require_package
from stash.core.printable import shorten_text
from stash.core.records.base import first_mistake
from stash.core.version import __version__

_ABOUT = (
    "Stash says where a PyTorch training step's time goes. Profile a command first, or use saved files: *.stash.json "
    "profiles, *.fix.json records, *.watch.jsonl runs, *.host.json probes, *.plan.json plans. Times are seconds a "
    "step; low and high are 95 % intervals; shares are of the step. Every answer is short; its `more` is a handle "
    "for the tool `more`. Errors are JSON with error.code. profile, fix and watch run the command that they "
    "are given, with your rights; the others only read files on this machine. Nothing here rents machines."
)


def mcp() -> None:
    """Serve Stash's tools to an agent over the Model Context Protocol.

    It reads standard input and writes standard output; start it from the agent's settings: {"command": "stash",
    "args": ["mcp"]}. It needs the package mcp.
    """
    served = server()

    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as streams:
            await served.run(*streams, served.create_initialization_options())

    anyio.run(serve)


def server() -> Any:
    """The server with its tools; raises UserError without the SDK."""
    sdk, kinds = (
        require_package(name, "stash mcp", "'mcp>=2'")
        for name in ("mcp.server.lowlevel", "mcp_types")
    )
    from stash.mcp_server.brief import output_schema
    from stash.mcp_server.tools import AgentTools

    tools = AgentTools()
    listed = [
        kinds.Tool(
            name=name,
            description=tool.function.__doc__,
            input_schema=tool.input_schema,
            output_schema=output_schema(tool.keys),
            annotations=kinds.ToolAnnotations(
                read_only_hint=not tool.runs,
                destructive_hint=tool.runs,
                open_world_hint=tool.runs,
            ),
        )
        for name, tool in tools.table.items()
    ]

    async def list_tools(context: Any, parameters: Any) -> Any:
        return kinds.ListToolsResult(tools=listed)

    async def call_tool(context: Any, parameters: Any) -> Any:
        """Errors, of arguments too, are JSON that a program can branch on."""
        try:
            text = await tools.call(parameters.name, parameters.arguments or {})
        except Exception as error:
            document = error_document(*_describe_error(error))
            text = json.dumps(document, ensure_ascii=False)
            return kinds.CallToolResult(
                is_error=True, content=[kinds.TextContent(type="text", text=text)]
            )
        return kinds.CallToolResult(
            content=[kinds.TextContent(type="text", text=text)],
            structured_content=json.loads(text),
        )

    return sdk.Server(
        "stash",
        version=__version__,
        instructions=_ABOUT,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _describe_error(error: Exception) -> tuple[str, str]:
    """Its code and its sentence; what is nobody's mistake says no more than its kind."""
    from pydantic import ValidationError

    if isinstance(error, StashError):
        return error.code, shorten_text(str(error), 3000)
    if isinstance(error, ValidationError):
        return UserError.code, shorten_text(first_mistake(error), 3000)
    return StashError.code, f"Stash failed: {one_line(error)}"
