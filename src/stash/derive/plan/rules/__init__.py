"""How people choose machines today, as rules beside a plan: each takes what its users look at, and nothing else."""

from stash.derive.plan.rules.compared import RULES, ChoiceRule, compare_rules
from stash.derive.plan.rules.offered import Offered, Picked, RuleFacts
from stash.derive.plan.rules.read import rule_facts

__all__ = ["RULES", "ChoiceRule", "Offered", "Picked", "RuleFacts", "compare_rules", "rule_facts"]
