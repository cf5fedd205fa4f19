"""``stash mcp``: Stash's commands as tools of the Model Context Protocol, for agents that program."""
