"""What an hour on a machine of one's own costs: its purchase spread over the hours of use, and its power.

    dollars per hour = purchase / (years · 8,760 h · utilisation) + power · price of power

An hour in which it stands idle is paid for by those in which it trains, so a machine that is used half the time costs
twice as much an hour. Power is that drawn in use; what it draws idle, and people, rooms and spare parts, are nowhere
in it: add them to the purchase.
"""

from __future__ import annotations

from dataclasses import dataclass

HOURS_A_YEAR = 8_760.0


@dataclass(frozen=True)
class Ownership:
    """What was paid for one machine, and how it is used."""

    purchase: float
    """Dollars."""
    years: float
    utilisation: float
    """Share of the time in which it is used: above 0, up to 1."""
    watts: float | None = None
    dollars_per_kwh: float | None = None

    @property
    def dollars_per_hour(self) -> float:
        return self._of_purchase + (self._of_power or 0.0)

    @property
    def derivation(self) -> str:
        """The same in words: ``"$180,000 over 4 years, used 60% of the time: $8.56/h; 6 kW …"``."""
        years = f"{self.years:g} year{'' if self.years == 1 else 's'}"
        bought = (
            f"${self.purchase:,.0f} over {years}, used {self.utilisation:.0%} of the time: ${self._of_purchase:.4g}/h"
        )
        if self.watts is None or self.dollars_per_kwh is None:
            return f"{bought}; power not counted"
        drawn = f"{self.watts / 1000:g} kW at ${self.dollars_per_kwh:g}/kWh: ${self._of_power:.4g}/h"
        return f"{bought}; {drawn}"

    @property
    def _of_purchase(self) -> float:
        return self.purchase / (self.years * HOURS_A_YEAR * self.utilisation)

    @property
    def _of_power(self) -> float | None:
        if self.watts is None or self.dollars_per_kwh is None:
            return None
        return self.watts / 1000 * self.dollars_per_kwh
