"""``stash mcp``: the tools, registered with the protocol's own SDK, on standard input and output."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    server().run()


def server() -> Any:
    """The server with its tools; raises UserError without the SDK."""
    sdk, kinds = (
        require_package(name, "stash mcp", "'mcp>=2'")
        for name in ("mcp.server.mcpserver", "mcp_types")
    )
    from stash.mcp_server import brief
    from stash.mcp_server.tools import AgentTools

    tools = AgentTools()
    reads = kinds.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, open_world_hint=False
    )
    runs = kinds.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
    answers = {
        tools.profile: brief.PROFILE,
        tools.fix: brief.FIX,
        tools.watch: brief.WATCH,
        tools.list_artefacts: brief.LISTING,
        tools.explain: None,
        tools.compare: brief.COMPARISON,
        tools.check: brief.DECISIONS,
        tools.what_if: brief.WHATIF,
        tools.recommend: brief.PLAN,
    }
    schemas = {_name(tool): brief.output_schema(keys) for tool, keys in answers.items()}
    schemas["more"] = {
        "type": "object",
        "properties": {"text": {}, "next_offset": {}},
        "required": ["text"],
    }

    class ToolServer(sdk.MCPServer):  # type: ignore[misc, name-defined]
        """Errors, of the protocol's own checks too, are JSON that a program can branch on."""

        async def list_tools(self) -> Any:
            listed = await super().list_tools()
            return [
                tool.model_copy(
                    update={
                        "input_schema": {**tool.input_schema, "additionalProperties": False},
                        "output_schema": schemas[tool.name],
                    }
                )
                for tool in listed
            ]

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            try:
                known = {
                    tool.name: tool.input_schema["properties"] for tool in await self.list_tools()
                }
                done = await super().call_tool(
                    name, named_arguments(name, arguments, known), context
                )
            except Exception as error:
                return _refusal(error, kinds)
            (content,) = done.content
            return done.model_copy(update={"structured_content": json.loads(content.text)})

    served = ToolServer("stash", version=__version__, instructions=_ABOUT, log_level="ERROR")
    for tool in (*answers, tools.more):
        hints = runs if tool in (tools.profile, tools.fix, tools.watch) else reads
        served.tool(
            name=_name(tool), description=tool.__doc__, annotations=hints, structured_output=False
        )(tool)
    return served


def _name(tool: Any) -> str:
    return "list" if tool.__name__ == "list_artefacts" else tool.__name__


def named_arguments(
    tool: str, arguments: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The arguments of a tool, with changes and options where the tool has them though they were given beside them.

    ``known``: each tool's parameters as JSON schemas. Raises UserError for an unknown tool or argument.
    """
    from stash.mcp_server.tools import near_names, plain_name

    if tool not in known:
        raise UserError(f"there is no tool {shorten_text(tool, 100)}; {near_names(tool, known)}")
    parameters = known[tool]
    nested = next((name for name, schema in parameters.items() if "properties" in schema), None)
    inside = {} if nested is None else parameters[nested]["properties"]
    named: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in parameters:
            named[name] = value
        elif nested is not None and plain_name(name) in inside:
            named[nested] = {**named.get(nested, arguments.get(nested, {})), name: value}
        else:
            why = near_names(name, [*parameters, *inside])
            raise UserError(f"{tool} has no argument {shorten_text(name, 100)}; {why}")
    return named


def _refusal(error: Exception, kinds: Any) -> Any:
    """An error as the answer of a tool; what is nobody's mistake says no more than its kind."""
    from pydantic import ValidationError

    cause = error if isinstance(error, StashError) else error.__cause__
    if isinstance(cause, StashError):
        code = cause.code
        text = str(cause)
    elif isinstance(cause, ValidationError):
        code = UserError.code
        text = first_mistake(cause)
    else:
        code = StashError.code
        text = f"Stash failed: {one_line(cause or error)}"
    document = json.dumps(error_document(code, shorten_text(text, 3000)), ensure_ascii=False)
    return kinds.CallToolResult(
        is_error=True, content=[kinds.TextContent(type="text", text=document)]
    )
