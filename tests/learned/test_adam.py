"""The optimiser against torch's own, and what it is for: a training begins soon."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from placekit.learned.adam import Adam  # noqa: E402  # needs torch


def test_steps_are_those_of_torch() -> None:
    """Bit for bit over 50 steps, also after a change of the step size and from the state of the other one."""
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(5)]
    ours, theirs = ([weight.clone().requires_grad_() for weight in start] for _ in range(2))
    adam, reference = Adam(ours, 1e-2), torch.optim.Adam(theirs, lr=1e-2)
    for number in range(50):
        if number == 20:
            adam.learning_rate = reference.param_groups[0]["lr"] = 3e-3
        if number == 30:
            adam.load_state_dict(reference.state_dict())
        for weights, optimiser in ((ours, adam), (theirs, reference)):
            optimiser.zero_grad()
            loss = sum(((weight - 1) ** 4).sum() for weight in weights)
            loss.backward()
            optimiser.step()
        for weight, other in zip(ours, theirs, strict=True):
            assert torch.equal(weight, other)


def test_weights_without_a_gradient_stay() -> None:
    """And have no moments."""
    weights = [torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)]
    adam = Adam(weights, 0.1)
    weights[0].sum().backward()
    adam.step()
    assert weights[1].tolist() == [1.0, 1.0]
    assert list(adam.state_dict()["state"]) == [0]


@pytest.mark.parametrize(
    ("moments", "told"),
    [
        ({3: {}}, "weight 3; there are 1"),
        ({0: {"step": torch.tensor(1.0)}}, "has moments"),
        (
            {0: {"step": torch.tensor(1.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(3)}},
            "exp_avg of weight 0",
        ),
    ],
)
def test_moments_of_other_weights_are_refused(moments: dict[int, dict[str, object]], told: str) -> None:
    """A damaged checkpoint is no training to go on with."""
    with pytest.raises(ValueError, match=told):
        Adam([torch.ones(3)], 0.1).load_state_dict({"state": moments})


@pytest.mark.parametrize("method", ["hsdag", "gdp", "placeto", "rnn", "doppler"])
def test_a_training_loads_no_compiler(method: str) -> None:
    """Neither torch's nor a library of graph networks: they take longer to import than many a time limit."""
    code = f"""
import sys
import placekit as pk
from placekit.benchmarks.families import generate
problem = generate("chains", 20, seed=1, num_devices=2)
result = pk.solve(problem, {method!r}, params={{"updates": 2}})
print(result.info["updates"], [name for name in ("torch._dynamo", "torch_geometric", "sympy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "2 []"
