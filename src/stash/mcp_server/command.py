"""``stash mcp``: the tools, registered with the protocol's own SDK, on standard input and output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any

from stash.core.errors import StashError, error_document
from stash.core.imports import require_package
from stash.core.printable import shortened
from stash.core.version import __version__

_ABOUT = (
    "Stash says where a PyTorch training step's time goes. Profile a command first, or use saved files: *.stash.json "
    "profiles, *.host.json probes, *.plan.json plans, *.spotlog.json runs. Times are seconds a step; low and high "
    "are 95 % intervals; shares are of the step. Every answer is short; its `more` is a handle for the tool `more`. "
    "Errors are JSON with error.code. Nothing here rents machines or costs money."
)


def mcp() -> None:
    """Serve Stash's tools to an agent, by the Model Context Protocol on standard input and output.

    An agent's settings name the command: {"command": "stash", "args": ["mcp"]}. Needs the package mcp.
    """
    server().run()


def server() -> Any:
    """The server with its tools; raises UserError without the SDK."""
    sdk, kinds = (require_package(name, "stash mcp", "'mcp>=2'") for name in ("mcp.server.mcpserver", "mcp_types"))
    from stash.mcp_server.tools import CHANGES, WISHES, AgentTools

    served = sdk.MCPServer("stash", version=__version__, instructions=_ABOUT, log_level="ERROR")
    mine = AgentTools()
    more_about = {mine.what_if: f"Changes: {_listed(CHANGES)}", mine.recommend: f"Options: {_listed(WISHES)}"}
    every = (mine.profile, mine.explain, mine.compare, mine.check, mine.what_if, mine.recommend, mine.more)
    for tool in every:
        hints = kinds.ToolAnnotations(
            read_only_hint=tool != mine.profile, destructive_hint=False, open_world_hint=False
        )
        about = f"{tool.__doc__} {more_about.get(tool, '')}".strip()
        served.tool(description=about, annotations=hints, structured_output=False)(_failing(tool, kinds))
    return served


def _failing(function: Callable[..., Any], kinds: Any) -> Callable[..., Any]:
    """The same, beside the protocol's own work; an error of Stash is JSON that a program can branch on."""

    @wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        import anyio.to_thread

        try:
            if iscoroutinefunction(function):
                return await function(*args, **kwargs)
            return await anyio.to_thread.run_sync(partial(function, *args, **kwargs))
        except StashError as error:
            text = json.dumps(error_document(error.code, shortened(str(error), 3000)), ensure_ascii=False)
            return kinds.CallToolResult(is_error=True, content=[kinds.TextContent(type="text", text=text)])

    return called


def _listed(options: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {text}" for name, text in options.items())
