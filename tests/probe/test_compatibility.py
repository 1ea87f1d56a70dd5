"""Kinds of PyTorch trainings with a probe: the table of docs/probe-compatibility.md is what happens here.

python tests/probe/test_compatibility.py    writes the table
"""

import contextlib
import copy
import functools
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn, optim
from torch.utils.checkpoint import checkpoint

from linnet.probe import Probe, ProbeWarning

PAGE = Path(__file__).parents[2] / "docs" / "probe-compatibility.md"
STEPS, EVERY = 8, 3
X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = torch.stack([X[:, 0], X[:, 1] * X[:, 2]], dim=1)
TOKENS = torch.randint(12, (24, 4), generator=torch.Generator().manual_seed(0))


def mse(model, batch):
    return nn.functional.mse_loss(model(batch[0]).float(), batch[1].float())


def net(*extra):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, bias=False), *extra, nn.Tanh(), nn.Linear(6, 2, bias=False))


# Models --------------------------------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.inner, self.reentrant = net(), reentrant

    def forward(self, x):
        return checkpoint(self.inner, x.detach().requires_grad_(), use_reentrant=self.reentrant)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.mixed, self.out = nn.Embedding(12, 4), nn.Linear(4, 12), nn.Linear(4, 2)

    def forward(self, x):
        parts = self.mixed(self.words(x)).unflatten(-1, (3, 2, 2)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.out = nn.GRU(1, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x):
        return self.out(self.layer(x[..., None])[0][:, -1])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.first(torch.tanh(self.first(x)))))


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(12, 2, sparse=True)

    def forward(self, x):
        return self.words(x).mean(1)


class Square(torch.autograd.Function):
    """A function whose derivative has none, as those of many fused kernels."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        return 2 * slope * ctx.saved_tensors[0]


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        return Square.apply(self.inner(x))


def adapted():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["0", "2"])
    return peft.get_peft_model(net(), config)


def frozen():
    model = net()
    model[0].requires_grad_(False)
    return model


# Optimizers ----------------------------------------------------------------------------------------------------------


class Lion(optim.Optimizer):
    """As in common packages: the sign of an average of gradients."""

    def __init__(self, weights, lr, betas=(0.9, 0.99)):
        super().__init__(weights, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for weight in group["params"]:
                average = self.state[weight].setdefault("exp_avg", torch.zeros_like(weight))
                weight.sub_(group["lr"] * torch.sign(first * average + (1 - first) * weight.grad))
                average.mul_(second).add_(weight.grad, alpha=1 - second)


def halves(first, second):
    """Two optimizers, each for half of the parameters."""
    return lambda weights: [first(weights[: len(weights) // 2]), second(weights[len(weights) // 2 :])]


def sgd(weights):
    return optim.SGD(weights, 0.05)


def adamw(weights):
    return optim.AdamW(weights, 0.01)


# Ways to make a step -------------------------------------------------------------------------------------------------


def plain(model, optimizers, batch, step):
    for one in optimizers:
        one.zero_grad()
    loss = mse(model, batch)
    loss.backward()
    for one in optimizers:
        one.step()
    return loss


def with_closure(model, optimizers, batch, step):
    def closure():
        optimizers[0].zero_grad()
        loss = mse(model, batch)
        loss.backward()
        return loss

    return optimizers[0].step(closure)


def autocast(model, optimizers, batch, step):
    optimizers[0].zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = mse(model, batch)
    loss.backward()
    optimizers[0].step()
    return loss


def scaled(model, optimizers, batch, step, scaler):
    optimizers[0].zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = mse(model, batch)
    scaler.scale(loss).backward()
    scaler.step(optimizers[0])
    scaler.update()
    return loss


def accumulated(model, optimizers, batch, step):
    optimizers[0].zero_grad()
    for part in zip(*(x.chunk(3) for x in batch), strict=True):
        loss = mse(model, part)
        (loss / 3).backward()
    optimizers[0].step()
    return loss


def clipped(model, optimizers, batch, step):
    optimizers[0].zero_grad()
    loss = mse(model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizers[0].step()
    return loss


def scheduled(model, optimizers, batch, step):
    for group in optimizers[0].param_groups:
        group["lr"] = 0.01 * (1 + step) / STEPS
    return plain(model, optimizers, batch, step)


def unfreezing(model, optimizers, batch, step):
    model[0].requires_grad_(step >= STEPS // 2)
    return plain(model, optimizers, batch, step)


class Kind:
    """One kind of training: its model, optimizers, step, batch, and what surrounds it."""

    def __init__(self, model=net, optimizer=adamw, step=plain, batch=(X, Y), around=contextlib.nullcontext, **options):
        self.model, self.optimizer, self.step, self.batch = model, optimizer, step, batch
        self.around, self.options = around, options


@contextlib.contextmanager
def one_process():
    """A group of one process, on the CPU."""
    distributed = torch.distributed
    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            yield
        finally:
            distributed.destroy_process_group()


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    return model


def averaged(model, optimizers, batch, step):
    loss = plain(model, optimizers, batch, step)
    averages = model.__dict__.setdefault("_averages", optim.swa_utils.AveragedModel(model))
    averages.update_parameters(model)
    return loss


KINDS = {
    "SGD": Kind(optimizer=sgd),
    "SGD with momentum": Kind(optimizer=lambda w: optim.SGD(w, 0.05, momentum=0.9)),
    "SGD with Nesterov momentum": Kind(optimizer=lambda w: optim.SGD(w, 0.05, momentum=0.9, nesterov=True)),
    "SGD with dampening and weight decay": Kind(
        optimizer=lambda w: optim.SGD(w, 0.05, momentum=0.9, dampening=0.5, weight_decay=0.1)
    ),
    "ASGD": Kind(optimizer=lambda w: optim.ASGD(w, 0.05)),
    "Adam": Kind(optimizer=lambda w: optim.Adam(w, 0.01)),
    "AdamW": Kind(),
    "NAdam": Kind(optimizer=lambda w: optim.NAdam(w, 0.01)),
    "RAdam": Kind(optimizer=lambda w: optim.RAdam(w, 0.01)),
    "Adamax": Kind(optimizer=lambda w: optim.Adamax(w, 0.01)),
    "RMSprop": Kind(optimizer=lambda w: optim.RMSprop(w, 0.01)),
    "Adadelta": Kind(optimizer=lambda w: optim.Adadelta(w, 0.5)),
    "Adagrad": Kind(optimizer=lambda w: optim.Adagrad(w, 0.05)),
    "Adafactor of PyTorch": Kind(optimizer=lambda w: optim.Adafactor(w, 0.05)),
    "Muon": Kind(optimizer=lambda w: optim.Muon(w, 0.01)),
    "Muon for matrices, AdamW for the rest": Kind(optimizer=halves(lambda w: optim.Muon(w, 0.01), adamw)),
    "Lion": Kind(optimizer=lambda w: Lion(w, 0.01)),
    "Rprop": Kind(optimizer=lambda w: optim.Rprop(w, 0.01)),
    "LBFGS": Kind(optimizer=lambda w: optim.LBFGS(w, 0.1, max_iter=3), step=with_closure),
    "SparseAdam on a sparse embedding": Kind(Sparse, lambda w: optim.SparseAdam(w, 0.01), batch=(TOKENS, Y)),
    "two optimizers, SGD and AdamW": Kind(optimizer=halves(sgd, adamw)),
    "groups with their own learning rates": Kind(
        optimizer=lambda w: optim.AdamW([{"params": w[:1], "lr": 0.003}, {"params": w[1:]}], 0.01)
    ),
    "a learning rate schedule": Kind(step=scheduled),
    "autocast to bfloat16": Kind(step=autocast),
    "autocast to float16 with a gradient scaler": Kind(
        step=lambda *a: scaled(*a, scaler=torch.amp.GradScaler("cpu", init_scale=8.0))
    ),
    "weights stored in bfloat16": Kind(lambda: net().bfloat16(), batch=(X.bfloat16(), Y.bfloat16())),
    "weights in double precision": Kind(lambda: net().double(), batch=(X.double(), Y.double())),
    "gradient accumulation": Kind(step=accumulated),
    "gradient clipping": Kind(step=clipped),
    "activation checkpointing": Kind(lambda: Checkpointed(False)),
    "activation checkpointing, reentrant": Kind(lambda: Checkpointed(True)),
    "fused attention (SDPA) and embeddings": Kind(Attention, batch=(TOKENS, Y)),
    "a recurrent network": Kind(Recurrent),
    "batch normalization": Kind(lambda: net(nn.BatchNorm1d(6))),
    "dropout": Kind(lambda: net(nn.Dropout(0.3))),
    "ReLU": Kind(lambda: net(nn.ReLU())),
    "ReLU, with differences of gradients": Kind(lambda: net(nn.ReLU()), products="differences"),
    "fused attention, with differences of gradients": Kind(Attention, batch=(TOKENS, Y), products="differences"),
    "tied weights": Kind(Tied),
    "frozen layers": Kind(frozen),
    "layers that are unfrozen later": Kind(step=unfreezing),
    "weights averaged beside (SWA, EMA)": Kind(step=averaged),
    "LoRA by peft": Kind(adapted),
    "torch.compile": Kind(lambda: torch.compile(net(), backend="aot_eager")),
    "DataParallel": Kind(lambda: nn.DataParallel(net())),
    "DistributedDataParallel (gloo)": Kind(lambda: nn.parallel.DistributedDataParallel(net()), around=one_process),
    "FSDP2 (fully_shard)": Kind(sharded, around=one_process),
    "kernels without a second derivative": Kind(Fused),
}


SLOW = ("LoRA by peft", "torch.compile")  # what they import takes seconds


def trained(kind, *, probed, **options):
    """The weights after some steps, the probe, and what it warned of."""
    torch.manual_seed(1)
    model = kind.model()
    weights = list(model.parameters())
    given = kind.optimizer([weight for weight in weights if weight.requires_grad] or weights)
    if kind.step is unfreezing:
        given = kind.optimizer(weights)
    optimizers = given if isinstance(given, list) else [given]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        probe = (
            Probe(model, mse, kind.batch, optimizer=given, every=EVERY, **kind.options, **options) if probed else None
        )
        for step in range(STEPS):
            loss = kind.step(model, optimizers, kind.batch, step)
            if probe is not None:
                probe.update(step, loss.detach())
    texts = [str(one.message) for one in heard if one.category is ProbeWarning]
    return [getattr(weight, "full_tensor", weight.clone)().detach() for weight in weights], probe, texts


def sharpness(model, batch):
    """The top of the Hessian by central differences of ordinary backward passes, in double precision."""
    model = copy.deepcopy(model).double().eval()
    batch = [x.double() if x.is_floating_point() else x for x in batch]
    weights = [weight for weight in model.parameters() if weight.requires_grad]

    def gradient():
        model.zero_grad()
        nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
        return torch.cat([w.new_zeros(w.numel()) if w.grad is None else w.grad.to_dense().reshape(-1) for w in weights])

    rows = []
    with torch.no_grad():
        for weight in weights:
            for i in range(weight.numel()):
                pair = []
                for e in (1e-5, -2e-5):
                    weight.view(-1)[i] += e
                    with torch.enable_grad():
                        pair.append(gradient())
                weight.view(-1)[i] += 1e-5
                rows.append((pair[0] - pair[1]) / 2e-5)
    return float(torch.linalg.eigvalsh((torch.stack(rows) + torch.stack(rows).T) / 2)[-1])


def result(name):
    """What the table says of a kind."""
    kind = KINDS[name]
    with kind.around():
        alone, _, _ = trained(kind, probed=False)
        beside, probe, texts = trained(kind, probed=True)
        assert all(torch.equal(a, b) for a, b in zip(alone, beside, strict=True)), "the probe changed the training"
        assert probe.record.forwards or "sharded" in texts[0]
        if texts:
            (text,) = texts
            text = text[0].upper() + text[1:]
            if "curvature" not in text:
                return text
            beside, probe, texts = trained(kind, probed=True, products="differences")
            assert all(torch.equal(a, b) for a, b in zip(alone, beside, strict=True)), "the probe changed the training"
            if texts:
                return text
        else:
            text = ""
        last = probe.record.measurements[-1]
        if last.get("unsure"):
            assert "ratio" not in last
            return "The largest eigenvalue is marked as unsure, and compared with nothing: gradients jump."
        exact = sharpness(probe.surface.model, kind.batch)
        assert abs(last["sharpness"][0] - exact) <= last["residual"][0] + 1e-4 * abs(exact), "it is wrong"
        if text:
            return f'{text.rstrip(".")}; `products="differences"` measures it.'
        if last.get("ratio") is not None:
            assert math.isfinite(last["ratio"])
            return "works"
        return f"works, without a threshold: {probe.rule().reason.partition(': ')[2]}"


INTRODUCTION = f"""# Trainings that the probe measures

Small trainings of {STEPS} steps, made by `tests/probe/test_compatibility.py`. In every row the weights with the probe
are bit for bit those without it. "Works": the largest Hessian eigenvalue is that of finite differences, and there is a
stability threshold to compare it with. "Works, without a threshold": there is none, and the reason. Where curvature
alone is not measured, the critical step by forward passes still is.

| training | with a probe |
|---|---|"""


@functools.cache
def table():
    """The results in the documentation by kind."""
    rows = PAGE.read_text(encoding="utf-8").partition("|---|---|\n")[2].splitlines()
    return dict(row.strip("| ").split(" | ", 1) for row in rows)


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in KINDS])
def test_the_table_is_what_happens(name):
    assert table()[name] == result(name)


def test_the_page_has_these_kinds():
    assert PAGE.read_text(encoding="utf-8").startswith(INTRODUCTION)
    assert list(table()) == list(KINDS)
    assert len(KINDS) >= 30


def process(rank, folder):
    """One of two that train one model: the first measures."""
    torch.set_num_threads(1)
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
    parts = X[rank::2], Y[rank::2]
    model = nn.parallel.DistributedDataParallel(net())
    optimizer = adamw(model.parameters())
    probe = Probe(model, mse, parts, optimizer=optimizer, every=EVERY)
    for step in range(STEPS):
        loss = plain(model, [optimizer], parts, step)
        probe.update(step, loss.detach())
    found = [line["sharpness"][0] for line in probe.record.measurements]
    weights = [weight.detach().tolist() for weight in model.parameters()]
    torch.save((found, sharpness(model.module, parts), weights), f"{folder}/{rank}")
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes(tmp_path):
    """The first of two processes measures, on its own batch; both have the same weights."""
    commands = [[sys.executable, __file__, str(rank), str(tmp_path)] for rank in (0, 1)]
    both = [subprocess.Popen(command) for command in commands]
    assert [one.wait(timeout=120) for one in both] == [0, 0]
    (found, exact, weights), (none, _, others) = (torch.load(tmp_path / str(rank)) for rank in (0, 1))
    assert found[-1] == pytest.approx(exact, rel=2e-3)
    assert none == []
    assert weights == others


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:]:
        process(int(sys.argv[1]), sys.argv[2])
        sys.exit()
    rows = "".join(f"\n| {name} | {result(name)} |" for name in KINDS)
    PAGE.write_text(f"{INTRODUCTION}{rows}\n", encoding="utf-8")
