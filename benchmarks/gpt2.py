"""What a probe takes of the time and memory of a training of GPT-2 (124 million parameters), and what it reports.

    pip install -c constraints.txt '.[torch]' transformers
    python benchmarks/gpt2.py [--steps 600] [--layers 12 --width 768 --batch 8 --length 512] [--budget 0.03]

AdamW with a linear warmup, bfloat16 autocast and fused attention on a GPU, on word tokens of the Python standard
library. The same training is run without a probe, with one, and without again, so that the scatter of the time is seen;
then twice over few steps with deterministic kernels, whose weights must agree to the last bit.
"""

import argparse
import contextlib
import hashlib
import os
import re
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts: deterministic products

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import GPT2Config, GPT2LMHeadModel

from linnet.probe import Probe

WORDS = 50_257


def tokens(least: int) -> torch.Tensor:
    """Numbers of words of the standard library's sources, by how often they occur."""
    found: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        found += re.findall(r"\w+|[^\w\s]|\n", path.read_text(encoding="utf-8", errors="ignore"))
        if len(found) > 20 * least:
            break
    numbers = {word: i for i, (word, _) in enumerate(Counter(found).most_common(WORDS - 1))}
    return torch.tensor([numbers.get(word, WORDS - 1) for word in found])


def train(options: argparse.Namespace, text: torch.Tensor, steps: int, *, probed: bool) -> dict[str, Any]:
    """One training: seconds, peak memory in bytes, the weights' hash, and the probe's record and verdict."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    heads = max(1, options.width // 64)
    config = GPT2Config(
        vocab_size=WORDS,
        n_positions=options.length,
        n_embd=options.width,
        n_layer=options.layers,
        n_head=heads,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
    draw = torch.Generator().manual_seed(1)

    def drawn() -> torch.Tensor:
        at = torch.randint(len(text) - options.length, (options.batch,), generator=draw)
        return torch.stack([text[i : i + options.length] for i in at]).to(device)

    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        context = torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()
        with context:
            return model(batch, labels=batch).loss

    fixed = drawn()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    began = time.perf_counter()
    probe = Probe(model, loss_of, fixed, optimizer=optimizer, budget=options.budget) if probed else None
    for step in range(steps):
        batch = drawn()
        loss = loss_of(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        warmup.step()
        if probe is not None:
            probe.update(step, loss, batch=batch)
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    if probe is not None:
        probe.flush()
    digest = hashlib.sha256()
    for weight in model.parameters():
        digest.update(weight.detach().cpu().numpy().tobytes())
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    about = None if probe is None else (probe.record, probe.verdict())
    return {"seconds": seconds, "peak": peak, "hash": digest.hexdigest(), "loss": loss.item(), "probe": about}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 600), ("layers", 12), ("width", 768), ("batch", 8), ("length", 512), ("same", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--budget", type=float, default=0.03)
    options = parser.parse_args()
    text = tokens(options.batch * options.length)
    train(options, text, 20, probed=False)  # kernels are chosen and memory is reserved
    runs = {name: train(options, text, options.steps, probed=name == "probe") for name in ("plain", "probe", "again")}
    usual = (runs["plain"]["seconds"] + runs["again"]["seconds"]) / 2
    rows = [
        (
            name,
            f"{run['seconds']:.2f}",
            f"{1e3 * run['seconds'] / options.steps:.2f}",
            f"{run['seconds'] / usual:.4f}",
            f"{run['peak'] / 2**30:.3f}",
            f"{run['loss']:.3f}",
        )
        for name, run in runs.items()
    ]
    for row in (("training", "s", "ms a step", "time", "peak GiB", "last loss"), *rows):
        print("".join(f"{cell:>12}" for cell in row))  # `timing.table` would load JAX
    record, verdict = runs["probe"]["probe"]
    for kind in ("anchors", "forwards", "measurements", "alarms"):
        print(f"{kind}: {[line['step'] for line in getattr(record, kind)]}")
    print(*verdict, sep="\n")
    print(f"JAX loaded: {'jax' in sys.modules}")
    torch.use_deterministic_algorithms(True)
    with sdpa_kernel(SDPBackend.MATH):  # fused attention adds up gradients in any order
        one, two, again = (train(options, text, options.same, probed=probed)["hash"] for probed in (False, True, False))
    print(f"weights after {options.same} deterministic steps: with and without a probe {same(one, two)}, ", end="")
    print(f"two trainings without a probe {same(one, again)}")


def same(one: str, other: str) -> str:
    return "bit-identical" if one == other else "DIFFERENT"


if __name__ == "__main__":
    main()
