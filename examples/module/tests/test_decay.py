"""The module passes the checks of every mixer, and computes the sum that its docstring describes."""

import torch
from madbench_decay import Decay

import madbench


def test_it_is_causal_and_holds_all_that_a_mixer_has_to():
    frame = madbench.verify(Decay)
    assert set(frame.verdict) == {"pass"}, frame[frame.verdict != "pass"].to_string()


def test_its_weights_are_powers_of_the_rate():
    torch.manual_seed(0)
    module, x = Decay(8, 2).double(), torch.randn(1, 5, 8).double()
    left = torch.sigmoid(module.rate).repeat_interleave(4)
    state = torch.zeros(8).double()
    for t, row in enumerate(module.value(x)[0]):
        state = left * state + row
        expected = module.out(torch.sigmoid(module.gate(x[0, t])) * state)
        torch.testing.assert_close(module(x)[0, t], expected)
