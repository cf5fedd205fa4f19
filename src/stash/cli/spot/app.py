"""``stash spot``: gathers its commands, each of which parses, loads and shows."""

from __future__ import annotations

from stash.cli.options import App
from stash.cli.spot.fit import fit
from stash.cli.spot.guard import guard
from stash.cli.spot.learn import learn
from stash.cli.spot.plan import plan
from stash.cli.spot.predict import predict
from stash.cli.spot.run import run
from stash.cli.spot.simulate import simulate
from stash.cli.spot.together import RunCommand

app = App(no_args_is_help=True)


@app.callback()
def spot() -> None:
    """Training on rented machines through parameter servers: how fast, how long, and which are cheapest."""


app.command()(fit)
app.command()(predict)
app.command()(learn)
app.command()(plan)
app.command()(simulate)
app.command(cls=RunCommand)(run)
app.command()(guard)
