"""A launcher reads energy counters while the highest rung runs, and the profile has what its blocks drew."""

import pytest
from launching import run

from stash.core.measured import Block
from stash.measure.host.energy_counters import EnergyCount
from stash.measure.launcher import measurement
from stash.measure.protocol.messages import LadderEnded, PhaseBegun, RoundDone


def slow_agents(orders, process):
    """Two rounds, of a second of ``solo`` and two of ``warm``, while the launcher's clock goes on."""
    process.ladder("solo", "warm")
    yield
    began = process.clock.now
    for number in range(2):
        for rung, seconds in (("solo", 1.0), ("warm", 2.0)):
            process.tell(PhaseBegun(rung, number))
            yield
            started = process.clock.now
            while process.clock.now < started + seconds:
                yield
            block = Block(
                number, rung, 0, 20, seconds, launch=orders.launch, started=started - began
            )
            process.tell(block)
        process.tell(RoundDone(number, 3.0))
    process.tell(LadderEnded("stopped"))
    return 0


def test_a_profile_has_the_energy_of_its_highest_rungs_blocks(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.stash]\npower-price = "$0.15/kWh"\n')
    reads = []

    def read(now):
        reads.append(now)
        return EnergyCount(now, {"package-0": 50.0 * now}, {"package-0": 262143.0})

    monkeypatch.setattr(measurement, "read_packages", read)
    result, _ = run(slow_agents)
    assert result.profile is not None
    energy = result.profile.energy
    assert energy is not None
    assert (energy.rung, energy.seconds, energy.counts) == ("warm", (2.0, 2.0), {"packages": 1})
    assert energy.joules["packages"] == pytest.approx((100.0, 100.0))
    assert energy.dollars_per_kwh == 0.15
    # ten times a second of four, and not while other rungs run
    assert 35 <= len(reads) <= 50
