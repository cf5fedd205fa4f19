"""The hand-made plan behind ``tests/golden/schema-1.plan.json``.

``PYTHONPATH=src python tests/support/golden_plans.py`` writes it, which only a new schema may need: old ones keep
their names.
"""

from pathlib import Path

from plan_builder import plan

from stash.plan.records import PLAN_SCHEMA, save_plan

GOLDEN = Path(__file__).parent.parent / "golden"

if __name__ == "__main__":
    save_plan(plan(), GOLDEN / f"schema-{PLAN_SCHEMA}.plan.json")
