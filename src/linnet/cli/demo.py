"""`linnet demo`: noisy low-rank recovery by a network of any width."""

from pathlib import Path
from typing import Any

from rich.console import Console

from linnet._files import placed
from linnet.cli.bar import bar
from linnet.cli.typed import picture
from linnet.reproduction import DemonstrationSetting, demonstrate


def run(
    d: int, rank: int, gamma_w: float, gamma_sigma2: float, steps: int, seed: int, out: Path, *, quiet: bool
) -> dict[str, Any]:
    """Runs the demonstration, draws it to `out` and returns what `--json` prints."""
    moves = picture(out, name="out", films=True)
    asked = DemonstrationSetting.of(d=d, rank=rank, gamma_w=gamma_w, gamma_sigma2=gamma_sigma2, steps=steps, seed=seed)
    console = Console(quiet=quiet)
    console.print(
        f"Two layers, {asked.d} -> {asked.width:,.0f} -> {asked.d}: {2 * asked.d * asked.width:,.0f} weights, trained "
        f"as {min(asked.width, 2 * asked.d):,.0f} neurons. {asked.steps} steps of gradient descent, all {asked.d} "
        "singular values at each."
    )
    with bar("training", quiet=quiet) as progress:
        found = demonstrate(asked, progress)
    if moves:
        with bar("drawing", quiet=quiet) as progress:
            found.animate(out, progress)
    else:
        with placed(out) as partial:
            found.plot().savefig(partial)
    ended = int(found.run.ended)
    how = "" if found.run.status == "horizon" else f" The run {found.run.status} at step {ended}."
    console.print(
        f"{found.seconds:.1f} s.{how} Test error {found.best_test_error:.3f} at step {found.best_step} (stable rank "
        f"{found.stable_rank_there:.1f}), {found.final_test_error:.3f} at the end. "
        f"{'Film' if moves else 'Picture'}: {out}"
    )
    same = ("best_step", "best_test_error", "stable_rank_there", "final_test_error", "seconds")
    return {
        **{name: getattr(asked, name) for name in ("d", "rank", "width", "variance", "c", "seed")},
        "lr": found.lr,
        "status": found.run.status.value,
        "ended": ended,
        **{name: getattr(found, name) for name in same},
        "figure": str(out),
    }
