"""What a change did to training, told by losses and prints of batches."""

import numpy as np

from stash.fix.training_proof import judge_training, loss_distance

LOSSES = [2.0, 1.5, 1.25, 1.0, 0.75, 0.5]


def rank(losses, batches=None):
    prints = list(range(len(losses))) if batches is None else batches
    return {"losses": [each.hex() for each in losses], "batches": prints}


def test_one_bit_is_another_training_where_none_is_claimed_and_rounding_where_that_is():
    other = [*LOSSES[:-1], 0.5 + 2**-20]
    assert not judge_training([rank(LOSSES)], [rank(other)], "none", 0.0).holds
    assert judge_training([rank(LOSSES)], [rank(other)], "rounding", 0.0).holds
    assert not judge_training([rank(LOSSES)], [rank([*LOSSES[:-1], 0.51])], "rounding", 0.0).holds


def grown(seed, factor=1.0):
    """Losses of 200 steps that a difference of 1e-7 has come to spread by a tenth at the end."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 1, 200) * np.minimum(0.1, 1e-7 * 1.2 ** np.arange(200))
    return [float(each) for each in factor * 2.0 * np.exp(-np.arange(200) / 100) * (1 + noise)]


def test_rounding_that_training_amplified_is_told_by_early_losses_and_the_mean():
    found = judge_training([rank(grown(0))], [rank(grown(1))], "rounding", 0.0)
    assert found.largest_difference > 0.01
    assert found.holds
    assert found.text.startswith("the first 20 losses differ by ")
    # WHILE losses that differ from the start, or all to one side, are another training's
    assert not judge_training([rank(grown(0))], [rank(grown(1, 1.002))], "rounding", 0.0).holds
    late = [*grown(0)[:100], *grown(1, 1.1)[100:]]
    assert not judge_training([rank(grown(0))], [rank(late)], "rounding", 0.0).holds
    # AND what claims to change nothing has no such allowance
    assert not judge_training([rank(grown(0))], [rank(grown(1))], "none", 0.0).holds


def test_other_batches_are_another_training_unless_only_their_order_is_claimed():
    changed = rank(LOSSES, [0, 2, 1, 3, 4, 5])
    assert not judge_training([rank(LOSSES)], [changed], "none", 0.0).holds
    assert judge_training([rank(LOSSES)], [changed], "order", 0.0).holds


def test_a_batch_that_comes_twice_is_refused_whatever_is_claimed():
    twice = rank(LOSSES, [0, 1, 1, 2, 2, 3])
    found = judge_training([rank(LOSSES)], [twice], "order", 0.0)
    assert not found.holds
    assert found.text == "2 of 6 batches came twice"


def test_a_script_that_does_not_repeat_itself_is_held_to_its_own_differences():
    near = [each * (1 + 1e-6) for each in LOSSES]
    assert judge_training([rank(LOSSES)], [rank(near)], "none", 1e-6).holds
    assert not judge_training(
        [rank(LOSSES)], [rank([each * (1 + 1e-4) for each in LOSSES])], "none", 1e-6
    ).holds


def test_not_a_number_is_far_from_every_loss_but_itself():
    nan = float("nan")
    assert loss_distance([rank([1.0, nan])], [rank([1.0, nan])]) == 0
    assert loss_distance([rank([1.0, 1.0])], [rank([1.0, nan])]) == float("inf")
    assert not judge_training([rank(LOSSES)], [rank([*LOSSES[:-1], nan])], "order", 0.0).holds


def test_without_losses_the_batches_have_to_be_the_same():
    assert judge_training([rank([])], [rank([])], "none", None).holds is False
    assert judge_training([rank([], [1, 2])], [rank([], [1, 2])], "none", None).holds
