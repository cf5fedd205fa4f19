"""What to say and do about a breakdown, and about a machine's findings. The only home of advice."""

from stash.derive.advise.findings import next_steps
from stash.derive.advise.verdict import Advice, verdict

__all__ = ["Advice", "next_steps", "verdict"]
