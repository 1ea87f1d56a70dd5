"""A process that only trains with PyTorch never loads JAX, and keeps its environment."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from linnet.probe.pairs import mode_scale, mode_sharpness
from linnet.theory import mixed

CODE = """
import os, sys, torch
before = set(os.environ)
from linnet.probe import Probe, read
torch.manual_seed(0)
layers = torch.nn.Linear(4, 6, bias=False), torch.nn.Linear(6, 5, bias=False), torch.nn.Tanh(), torch.nn.Linear(5, 1)
model = torch.nn.Sequential(*layers)
batch = torch.randn(20, 4), torch.randn(20, 1)
loss_fn = lambda model, batch: torch.nn.functional.mse_loss(model(batch[0]), batch[1])
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
probe = Probe(model, loss_fn, batch, optimizer=optimizer, folder=sys.argv[1], every=2)
for step in range(4):
    optimizer.zero_grad()
    loss = loss_fn(model, batch)
    loss.backward()
    optimizer.step()
    probe.update(step, loss)
assert len(probe.record.measurements) == 4, probe.verdict()
assert probe.record.pairs and str(probe)
try: probe.update(-1)
except ValueError: pass
read(sys.argv[1])
assert not [name for name in os.environ if name.startswith(("JAX_", "XLA_PYTHON")) and name not in before]
print([name for name in sys.modules if name.split(".")[0] in ("jax", "jaxlib", "equinox", "jaxtyping")])
"""


def test_jax_is_not_loaded(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    run = [sys.executable, "-c", CODE, str(tmp_path / "run")]
    assert subprocess.run(run, check=True, capture_output=True, text=True, env=environment).stdout == "[]\n"


@pytest.mark.parametrize("how", ["import jax, linnet", "import linnet, jax"])
def test_double_precision_is_on_whichever_comes_first(how):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    run = [sys.executable, "-c", f"{how}; print(jax.numpy.ones(1).dtype)"]
    assert subprocess.run(run, check=True, capture_output=True, text=True, env=environment).stdout == "float64\n"


def test_formulas_in_plain_floats_are_those_of_theory():
    rng = np.random.default_rng(0)
    for first, second, target, kappa in rng.lognormal(0, 3, size=(50, 4)):
        value = rng.uniform(-1, 1) * math.sqrt(first * second)
        c = mode_scale(first, second, value)
        assert c == pytest.approx(float(mixed.mode_scale(first, second, value)), rel=1e-12)
        sharpness = mode_sharpness(value, target, c, kappa)
        assert sharpness == pytest.approx(float(mixed.mode_sharpness(value, target, c, kappa)), rel=1e-12)
