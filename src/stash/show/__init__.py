"""What was derived, made readable: for each kind of artefact a view (pure), and renderers that only arrange it."""
