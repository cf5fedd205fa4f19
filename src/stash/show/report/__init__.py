"""The report that people forward: a page as pure data, and renderers to HTML, Markdown and a notebook's cell."""
