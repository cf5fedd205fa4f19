"""A fleet in virtual time: whose gradient is applied when, of which parameters, and how stale it is."""

from itertools import islice

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from stash.spot.model.loss_curve import equal_fleet
from stash.spot.replay import DivergedError, replay
from stash.spot.run_records import LOSS_WINDOW, VirtualWorker
from stash.spot.train.elastic_job import ElasticJob
from stash.spot.train.samples import SampleOrder

CPU = torch.device("cpu")


class Scalar(nn.Module):
    """One parameter, which begins at 1."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.ones(()))


def watched(seen, rate=0.5):
    """Loss p²/2, whose gradient is p; every p that a gradient was computed of is added to ``seen``."""

    def loss(model, batch):
        value = model.value
        assert isinstance(value, torch.Tensor)
        seen.append(value.item())
        return value.square() / 2

    return ElasticJob(
        Scalar, loss, lambda parameters: torch.optim.SGD(parameters, rate), numbers, batch=2
    )


def numbers():
    return TensorDataset(torch.arange(10.0))


def regression(rate=0.05):
    def data():
        random = torch.Generator().manual_seed(7)
        x = torch.randn(64, 3, generator=random)
        return TensorDataset(x, x @ torch.tensor([[1.0], [2.0], [-1.0]]))

    def loss(model, batch):
        x, y = batch
        return (model(x) - y).square().mean()

    return ElasticJob(
        lambda: nn.Linear(3, 1), loss, lambda p: torch.optim.SGD(p, rate), data, batch=8, seed=3
    )


def test_gradients_are_of_the_parameters_that_were_fetched_and_applied_when_iterations_end():
    seen = []
    replay(watched(seen), numbers(), equal_fleet(2, 2), LOSS_WINDOW + 10, 0, CPU)
    # Both fetch 1. The first's gradient 1 makes 0.5, which it fetches; the second's 1 makes 0, which it fetches;
    # the first's 0.5 makes -0.25, the second's 0 leaves it there, the first's -0.25 makes -0.125.
    assert seen[:7] == [1.0, 1.0, 0.5, 0.0, -0.25, -0.25, -0.125]


def test_a_lone_worker_trains_as_any_loop_does():
    job = regression()
    found = replay(job, job.data(), equal_fleet(1, 8), 60, 11, CPU)
    torch.manual_seed(job.seed)
    model = job.model()
    steps = job.optimizer(model.parameters())
    order = iter(SampleOrder(64, 11))
    losses = []
    data = job.data()
    for _ in range(60):
        chosen = [data[number] for number in islice(order, 8)]
        steps.zero_grad()
        error = job.loss(model, torch.utils.data.default_collate(chosen))
        error.backward()
        steps.step()
        losses.append(float(error.detach()))
    assert found.updates[-1] == 60
    assert found.losses[-1] == pytest.approx(sum(losses[-LOSS_WINDOW:]) / LOSS_WINDOW)
    assert found.losses[0] == pytest.approx(sum(losses[:LOSS_WINDOW]) / LOSS_WINDOW)
    assert (found.staleness, found.imbalance, found.mean_batch) == (0, 0, 8)


def test_equal_workers_are_as_stale_as_there_are_others():
    job = regression()
    found = replay(job, job.data(), equal_fleet(4, 8), 400, 1, CPU)
    assert found.staleness == pytest.approx(3, abs=0.05)


def test_unlike_workers_have_the_mean_batch_of_their_updates():
    job = regression()
    workers = (VirtualWorker(samples=8, seconds=1.0), VirtualWorker(samples=32, seconds=3.0))
    found = replay(job, job.data(), workers, 100, 1, CPU)
    assert found.mean_batch == pytest.approx((3 * 8 + 32) / 4)
    assert found.staleness > 0


def test_a_loss_that_is_no_number_ends_the_replay():
    with pytest.raises(DivergedError) as end:
        replay(watched([], rate=1e9), numbers(), equal_fleet(1, 2), 200, 0, CPU)
    assert end.value.updates < 10


def test_a_place_holds_one_sample_whoever_asks_and_every_epoch_has_all_in_another_order():
    stream = list(islice(SampleOrder(10, 4), 40))
    epochs = [stream[at : at + 10] for at in range(0, 40, 10)]
    assert all(sorted(each) == list(range(10)) for each in epochs)
    assert len({tuple(each) for each in epochs}) == 4
    late = SampleOrder(10, 4)
    assert [late[number] for number in (35, 3, 12, 39, 12)] == [
        stream[number] for number in (35, 3, 12, 39, 12)
    ]
