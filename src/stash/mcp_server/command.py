"""``stash mcp``: the tools, registered with the protocol's own SDK, on standard input and output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial, wraps
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from stash.core.errors import StashError, UserError, error_document
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

    An agent's settings name the command: {"command": "stash", "args": ["mcp"]}. Needs stash-ddl[mcp].
    """
    server().run()


def server() -> Any:
    """The server with its tools; raises UserError without the SDK."""
    try:
        sdk, kinds = import_module("mcp.server.mcpserver"), import_module("mcp_types")
    except ImportError:
        raise UserError("stash mcp needs a package that is not installed: pip install 'stash-ddl[mcp]'") from None
    from stash.mcp_server import tools
    from stash.mcp_server.brief import Handles

    handles = Handles()
    served = sdk.MCPServer("stash", version=__version__, instructions=_ABOUT, log_level="ERROR")

    def tool(reads_only: bool = True, description: str = "") -> Callable[[Callable[..., Any]], None]:
        hints = kinds.ToolAnnotations(read_only_hint=reads_only, destructive_hint=False, open_world_hint=False)

        def register(function: Callable[..., Any]) -> None:
            about = f"{function.__doc__} {description}".strip()
            served.tool(description=about, annotations=hints, structured_output=False)(_failing(function, kinds))

        return register

    @tool(reads_only=False)
    async def profile(command: list[str], seconds: float = 60, output: str | None = None) -> str:
        """Profile a training command on this machine for at most so many seconds, and explain the result. The command
        is ["train.py", "--lr", "0.1"], ["-m", "my.training"], or another launcher's words."""
        return await tools.profile(handles, command, seconds, output)

    @tool()
    def explain(run: str) -> str:
        """Say what a saved file tells: of a profile the verdict, each stall, and what to do next."""
        return tools.explain(handles, run)

    @tool()
    def compare(before: str, after: str) -> str:
        """Say what differs between two profiles of one job, stall by stall, and whether more than chance is shown."""
        return tools.compare(handles, before, after)

    @tool()
    def check(
        run: str, most: list[str] = [], least: list[str] = [], baseline: str | None = None,  # noqa: B006 - never changed
        slower: list[str] = [], require: list[str] = [],  # noqa: B006
    ) -> str:  # fmt: skip
        """Say whether a profile keeps limits: most ["network=15%", "step=250ms"], least ["samples/s=60"], against a
        baseline slower ["5%", "fetch=20%"], require ["ranks=8"]. The verdict is passes, fails or cannot tell."""
        return tools.check(handles, run, most, least, baseline, slower, require)

    @tool(description=f"Changes: {_listed(tools.CHANGES)}")
    def what_if(run: str, changes: dict[str, str]) -> str:
        """Predict a profiled job's step on other machines or with other settings."""
        return tools.what_if(handles, run, changes)

    @tool(description=f"Options: {_listed(tools.WISHES)}")
    def recommend(runs: list[str], options: dict[str, str]) -> str:
        """Say what to rent for a profiled job, by published prices; nothing is rented."""
        return tools.recommend(handles, runs, options)

    @tool()
    def more(handle: str, path: str = "", offset: int = 0) -> str:
        """The whole of an earlier answer's document, piece by piece: at a path like "choices/0/dollars", from a
        character on."""
        return handles.piece(handle, path, offset)

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
