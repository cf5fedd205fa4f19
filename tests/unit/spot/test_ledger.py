"""Which samples were trained on, who trains on which, and how far ahead a worker may be."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.spot.train.ledger import LeaseLedger, Spans, cut_range

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=12)


@given(RANGES, st.integers(0, 50), st.integers(1, 8))
def test_spans_are_sets_that_refuse_what_they_have(ranges, at, length):
    spans = Spans()
    truth = set()
    for start, size in ranges:
        these = set(range(start, start + size))
        if truth & these:
            with pytest.raises(ValueError, match="were there before"):
                spans.add(start, start + size)
        else:
            spans.add(start, start + size)
            truth |= these
    asked = set(range(at, at + length))
    assert spans.samples == len(truth)
    assert spans.holds(at, at + length) == (asked <= truth)
    assert spans.touches(at, at + length) == bool(asked & truth)
    missing = {number for start, stop in spans.gaps(50) for number in range(start, stop)}
    assert missing == set(range(50)) - truth
    assert Spans(spans.ranges).ranges == spans.ranges
    assert all(
        left[1] < right[0] for left, right in zip(spans.ranges, spans.ranges[1:], strict=False)
    )


def test_pieces_have_no_edge_inside_and_no_more_than_they_may():
    assert cut_range(10, 30, [5, 18, 30, 40], 6) == [(10, 16), (16, 18), (18, 24), (24, 30)]


@pytest.mark.parametrize("broken", ["lost", "doubled"])
def test_the_audit_can_fail(broken):
    ledger = LeaseLedger()
    lease = ledger.issue_lease("a", 8)
    if broken == "lost":
        ledger._out.clear()
    else:
        ledger._waiting.append(lease)
    assert ledger.audit() is not None


class _Shards:
    """Servers in memory that apply, save and are set back as the real ones do."""

    def __init__(self, count):
        self.applied = [Spans() for _ in range(count)]
        self.saved = [()] * count
        self.counts = [{} for _ in range(count)]
        self.saved_counts = [{} for _ in range(count)]

    def push(self, shard, lease):
        spans = self.applied[shard]
        counts = self.counts[shard]
        if spans.holds(lease.start, lease.stop):
            return True
        if spans.touches(lease.start, lease.stop):
            return False
        spans.add(lease.start, lease.stop)
        for sample in range(lease.start, lease.stop):
            counts[sample] = counts.get(sample, 0) + 1
        return True

    def save(self, shard):
        self.saved[shard], self.saved_counts[shard] = (
            self.applied[shard].ranges,
            dict(self.counts[shard]),
        )

    def crash(self, shard):
        self.applied[shard], self.counts[shard] = (
            Spans(self.saved[shard]),
            dict(self.saved_counts[shard]),
        )


@settings(deadline=None, max_examples=120)
@given(seed=st.integers(0, 10**9), shards=st.integers(1, 3))
def test_every_sample_is_applied_exactly_once_by_every_server(seed, shards):
    chance = random.Random(seed)
    ledger = LeaseLedger()
    servers = _Shards(shards)
    batches = {"a": 4, "b": 7, "c": 3}
    pushed = {}
    """Whoever still believes in a lease, and the servers that it has reached."""

    def step(worker, died):
        own = [key for key in pushed if key[0] == worker]
        if not own:
            pushed[worker, ledger.issue_lease(worker, batches[worker])] = set()
            return
        if chance.random() < 0.1:  # it reads ahead
            pushed[worker, ledger.issue_lease(worker, batches[worker])] = set()
            own += [key for key in pushed if key[0] == worker][len(own) :]
        _, lease = key = own[0]
        left = [shard for shard in range(shards) if shard not in pushed[key]]
        if left and not died:
            shard = chance.choice(left)
            if servers.push(shard, lease):
                pushed[key].add(shard)
                return
            ledger.return_lease(worker, lease)
            ledger.reconcile(servers.applied, 5)
        elif left:
            ledger.drop_worker(worker)
            if chance.random() < 0.5:
                return  # it is not dead but slow, and will push the rest later
        else:
            ledger.complete_lease(worker, lease)
        del pushed[key]

    for _ in range(150):
        what = chance.random()
        if what < 0.04:
            # whoever pushed before goes on believing that it arrived
            servers.crash(chance.randrange(shards))
            ledger.reconcile(servers.applied, 5)
        elif what < 0.12:
            servers.save(chance.randrange(shards))
        else:
            step(chance.choice("abc"), chance.random() < 0.08)
        assert ledger.audit() is None
    begun = {next((lease for lease in ledger.worker_leases(worker)), None) for worker in batches}
    ledger.withdraw([lease for lease in ledger.out if lease not in begun])
    assert ledger.audit() is None
    for worker in batches:
        ledger.drop_worker(worker)
    while ledger.waiting:
        lease = ledger.issue_lease("last", 1)
        done = [servers.push(shard, lease) for shard in range(shards)]
        if all(done):
            ledger.complete_lease("last", lease)
        else:
            ledger.return_lease("last", lease)
            ledger.reconcile(servers.applied, 5)
    for counts in servers.counts:
        assert counts == dict.fromkeys(range(ledger.issued), 1)
    assert ledger.done_samples == ledger.issued


def test_what_nobody_began_was_never_given_unless_somebody_had_it_before():
    ledger = LeaseLedger()
    ledger.issue_lease("a", 8)
    ledger.issue_lease("b", 8)
    ledger.drop_worker("b")  # which may have handed it to some server
    again = ledger.issue_lease("a", 8)
    new = ledger.issue_lease("a", 8)
    ledger.withdraw([again, new])
    assert (ledger.issued, ledger.waiting) == (16, (again,))
    assert ledger.audit() is None


def test_what_a_server_forgot_is_counted_although_others_had_more_than_was_booked():
    ledger = LeaseLedger()
    first = ledger.issue_lease("a", 8)
    second = ledger.issue_lease("a", 8)
    ledger.complete_lease("a", first)
    assert ledger.reconcile([Spans([(second.start, second.stop)])], 8) == 8
