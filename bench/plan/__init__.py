"""How good are the choices of ``stash recommend``: judged by what others published, and by running all candidates."""
