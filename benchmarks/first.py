"""What a first answer costs: CPU seconds of commands and calls, with nothing kept on disk, then with what was kept.

    pip install -c constraints.txt '.[test]'
    python benchmarks/first.py [--reproduce] [--tests]

Prints the tables of the README and of docs/architecture.md. Every line is measured in a process of its own, first with
an empty folder for compiled programs and then with what the first time has left in it. Commands are measured from the
start of Python to their end; calls after the imports, in a session that has made arrays before. `--reproduce` and
`--tests` add the whole report and all tests, in minutes on the clock. It is for a quiet machine.
"""

import argparse
import compileall
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOPICS = {
    "network": "lora",
    "phase": "--gamma-w 2.25 --gamma-sigma2 -1.85 --d 500",
    "features": "--samples 10 --inputs 10000 --width 1024 --v0 0.001 --sigma0 0.01",
    "stability": "--depth 3 --spectrum 10,9,6 --lr 0.033",
    "rates": "--depth 3 --spectrum 3,2,1",
    "bias": "--spectrum 3,2,1 --gamma 0.01",
    "balance": "--spectrum 3,2,1 --lam 0.5",
    "landscape": "--spectrum 3,2,1 --width 2",
}
COMMAND = "import sys; from linnet.cli import main; sys.argv = ['linnet', *sys.argv[1:]]; main()"
KINDS = {"jaxpr_trace_duration": "tracing", "to_mlir_module_duration": "lowering", "backend_compile_duration": "XLA"}
STATES = ("2 x 2", "three layers", "modes")
WORST = 5  # functions that are named


# What the processes do ------------------------------------------------------------------------------------------------


def predicted(*arguments: str) -> dict[str, float]:
    """A command, which prints its answer; what its time went to."""
    import jax

    from linnet import cli

    for module in ("linnet.cli.app", "linnet.prediction"):
        import_module(module)
    imports, spans = time.process_time(), []

    def heard(event: str, seconds: float, **_: Any) -> None:
        kind = next((told for mark, told in KINDS.items() if event.endswith(mark)), None)
        if kind is not None:
            began = time.perf_counter() - seconds
            spans[:] = [span for span in spans if span[1] < began]  # what was inside of this counts once
            spans.append((kind, began, seconds))

    jax.monitoring.register_event_duration_secs_listener(heard)
    sys.argv = ["linnet", "predict", *arguments]
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        cli.guarded()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.stdout = out
    parts = {kind: sum(seconds for told, _, seconds in spans if told == kind) for kind in KINDS.values()}
    return {"imports": imports, **parts, "programs": sum(kind == "XLA" for kind, *_ in spans)}


def cpu(call: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    import jax

    began = time.process_time()
    jax.block_until_ready(call())
    return time.process_time() - began


def simulated(state: str, optimizer: str) -> dict[str, float]:
    """A first run, one of another length, and one with other numbers."""
    import jax
    import numpy as np

    import linnet as ln

    ln.cache_programs()
    jax.block_until_ready(jax.numpy.zeros(3) + 1)
    problem, start = {
        "2 x 2": lambda: (p := ln.factorization(np.diag([2.0, 1.0])), ln.init.i_gamma(p, 0.1)),
        "three layers": lambda: (
            ln.regression(np.eye(6, 4), np.ones((6, 3))),
            ln.Weights([np.full((5, 4), 0.1), np.full((4, 5), 0.2), np.full((3, 4), 0.1)]),
        ),
        "modes": lambda: (ln.factorization(np.array([3.0, 2.0, 1.0])), ln.Modes(np.full((3, 3), 0.5))),
    }[state]()
    descends = optimizer == "SGD"
    moved, unit, once, other = (
        (ln.optim.SGD(0.01), "steps", 100, 101) if descends else (ln.optim.GradientFlow(), "time", 1.0, 1.1)
    )
    first = cpu(lambda: ln.simulate(problem, start, moved, **{unit: once}).final)
    return {"first": first, "other": cpu(lambda: ln.simulate(problem, start, moved, **{unit: other}).final)}


def called() -> dict[str, float]:
    """Every public function of theory and init, with the arguments that the tests know as good ones."""
    import diffrax  # noqa: F401
    import jax
    import scipy.integrate
    import scipy.linalg
    import scipy.optimize
    import scipy.stats  # noqa: F401  (imports are not what is measured)

    import linnet as ln

    ln.cache_programs()
    sys.path.insert(0, str(ROOT / "tests" / "theory"))
    table: Any = import_module("test_domains")
    calls = _initializers()
    for name, row in table.TABLE.items():
        module, *inside = name.split(".")
        owner = table.SELF[inside[0]] if len(inside) > 1 else import_module(f"linnet.theory.{module}")
        calls[f"theory.{name}"] = (getattr(owner, inside[-1]), {n: argument.good for n, argument in row.items()})
    found = {}
    for name, (call, given) in calls.items():
        jax.clear_caches()
        found[name] = cpu(lambda call=call, given=given: call(**given))
    return found


def _initializers() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    import jax
    import numpy as np

    import linnet as ln
    from linnet import init

    key, matrix = jax.random.key(0), np.array([[3.0, 0.5], [0.0, 2.0]])
    problem, one = ln.factorization(matrix), ln.problems.mean_field_regression(np.eye(2, 3), np.ones(2), width=5)
    deep = {"problem": problem, "alpha": 0.1, "depth": 3}
    given: dict[str, dict[str, Any]] = {
        "gaussian": {"key": key, "problem": problem, "width": 7, "variance": 0.1},
        "readout": {"key": key, "problem": one, "width": 5, "sigma0": 0.1, "v0": 0.1},
        "i_gamma": {"problem": problem, "gamma": 0.1, "width": 5, "key": key},
        "propagator": {"problem": problem},
        "balanced": {"matrix": matrix, "hidden": (3, 4), "key": key},
        "critical": {"problem": problem, "hidden": (3,), "kept": (1,), "key": key},
        "gauge": {"key": key, "state": ln.init.balanced(matrix, (3,))},
        "identity": deep,
        "one_zero": deep,
        "orthogonal": {"key": key, **deep},
        "random_one_zero": {"key": key, **deep},
        "aligned": {"problem": problem, "values": np.full((3, 2), 0.5), "key": key},
        "mixed_manifold": {"matrix": matrix, "c": 0.5},
        "two_c_balanced": {"matrix": matrix, "c": 0.5},
        "lambda_balanced": {"key": key, "problem": problem, "lam": 0.5, "width": 2},
    }
    there = {n for n, f in vars(init).items() if n[0] != "_" and getattr(f, "__module__", "") == init.__name__}
    assert there == set(given), there ^ set(given)
    return {f"init.{name}": (getattr(init, name), row) for name, row in given.items()}


# What is made of it ---------------------------------------------------------------------------------------------------


def process(folder: Path, *arguments: str) -> tuple[str, float]:
    """What a Python process prints, and the CPU seconds that it took."""
    ours = ("JAX_COMPILATION", "JAX_PERSISTENT", "PYTHONDONTWRITEBYTECODE")
    theirs = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**theirs, "LINNET_CACHE": str(folder)},
    )
    assert told.returncode == 0, told.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def twice(*arguments: str) -> list[tuple[dict[str, float], float]]:
    """What a function above says with an empty folder, then with a filled one; with its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        both = [process(Path(folder), __file__, "--inside", *arguments) for _ in range(2)]
    return [(json.loads(told), seconds) for told, seconds in both]


def topics() -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The lines of the predictions, and where their time goes."""
    lines, parts = [], []
    for topic, words in TOPICS.items():
        (first, whole), (second, again) = twice("predicted", topic, *words.split())
        lines.append((f"`linnet predict {topic}`", f"{whole:.1f} / {again:.1f}", "3 / 1.5"))
        for when, part, seconds in (("first", first, whole), ("second", second, again)):
            rest = seconds - sum(part[name] for name in ("imports", *KINDS.values()))
            numbers = [part["imports"], *(part[name] for name in KINDS.values()), rest]
            parts.append((f"{topic}, {when}", *(f"{x:.2f}" for x in numbers), f"{part['programs']:.0f}"))
    return lines, parts


def runs() -> list[tuple[str, ...]]:
    """The lines of `simulate`."""
    lines = []
    for optimizer, asked in (("SGD", "0.5 / 0.1; 0.01"), ("GradientFlow", "1.3 / 0.3")):
        for state in STATES:
            (first, _), (second, _) = twice("simulated", state, optimizer)
            what = f"{first['first']:.2f} / {second['first']:.2f}; {first['other']:.3f}"
            lines.append((f"`simulate`, `{optimizer}`, {state}; another length", what, asked))
    return lines


def functions() -> list[tuple[str, ...]]:
    """The lines of theory and init: the worst ones, and how many take longer than asked."""
    (first, _), (second, _) = twice("called")
    slowest = sorted(first, key=lambda name: -first[name])
    slow = [sum(seconds > 0.3 for seconds in found.values()) for found in (first, second)]
    return [
        (f"first calls of {len(first)} public functions: over 0.3 s", f"{slow[0]} / {slow[1]}", "0"),
        *((f"`{name}`", f"{first[name]:.2f} / {second[name]:.2f}", "0.3") for name in slowest[:WORST]),
    ]


def commands() -> list[tuple[str, ...]]:
    """The lines of what compiles nothing."""
    lines = []
    for words, asked in (("--help", "0.2"), ("list", "0.4"), ("show mixed/fig1", "")):
        with tempfile.TemporaryDirectory() as folder:
            both = [process(Path(folder), "-c", COMMAND, *words.split())[1] for _ in range(2)]
        lines.append((f"`linnet {words}`", " / ".join(f"{seconds:.2f}" for seconds in both), asked))
    return lines


def long(what: str, asked: str, *arguments: str) -> tuple[str, ...]:
    """A line of something that takes minutes, on the clock."""
    with tempfile.TemporaryDirectory() as folder:
        minutes = []
        for _ in range(2):
            began = time.perf_counter()
            process(Path(folder), *arguments)
            minutes.append((time.perf_counter() - began) / 60)
    return what, " / ".join(f"{m:.1f} min" for m in minutes), asked


def main() -> None:
    """Measures, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reproduce", action="store_true", help="also `linnet reproduce`, everything at quick size")
    parser.add_argument("--tests", action="store_true", help="also all tests")
    asked = parser.parse_args()
    import jax
    from timing import table

    import linnet

    compileall.compile_dir(Path(linnet.__file__).parent, quiet=1)  # as an installation does
    lines, parts = topics()
    lines += [*runs(), *functions(), *commands()]
    if asked.reproduce:
        with tempfile.TemporaryDirectory() as out:
            lines.append(long("`linnet reproduce`", "2.5 min", "-c", COMMAND, "reproduce", "--out", out))
    if asked.tests:
        lines.append(long("all tests", "7 min", "-m", "pytest", "--cache-clear", str(ROOT / "tests")))
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, JAX {jax.__version__}\n")
    print(table(lines, ("what", "CPU seconds, first / second time", "asked")), "\n")
    print(table(parts, ("`linnet predict`", "imports", *KINDS.values(), "the rest", "programs")))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps({f.__name__: f for f in (predicted, simulated, called)}[sys.argv[2]](*sys.argv[3:])))
    else:
        main()
