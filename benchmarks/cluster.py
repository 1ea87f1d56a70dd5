"""What Dask costs and gains: calls of nothing, and calls of two seconds by one worker and by two.

    PYTHONPATH=src python benchmarks/cluster.py [--calls 10000] [--seconds 2] [--count 8]

As in `linnet sweep --cluster local:2`: a scheduler and workers on this machine, a few calls under way for
each worker. The first number is what the scheduler costs for a chunk, which must be small against what a chunk takes.
The second says something on two quiet cores only, so the load of the machine is printed with it, and the share of
the time in which both workers were at a call: the rest is what Dask costs them, whoever else uses the cores.
"""

import argparse
import hashlib
import os
import time

from linnet.sweep import as_completed, connect


def timed(where: str, calls: list) -> tuple[float, list]:
    """Seconds of all calls, workers being there and warm, and what they returned."""
    with connect(where) as client:
        list(as_completed(client, [(abs, (-1,))] * 8, str))
        began = time.perf_counter()
        found = list(as_completed(client, calls, str))
        assert len(found) == len(calls)
        return time.perf_counter() - began, [value for _, value in found]


def work(rounds: int) -> float:
    """Keeps one core busy, in the same way every time; the seconds that it took."""
    began = time.perf_counter()
    hashlib.pbkdf2_hmac("sha256", b"linnet", b"salt", rounds)
    return time.perf_counter() - began


def rounds_of(seconds: float) -> int:
    """How many rounds take so long here."""
    began = time.process_time()
    work(1_000_000)
    return int(1_000_000 * seconds / (time.process_time() - began))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--count", type=int, default=8)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before.")
    seconds, _ = timed("local:2", [(abs, (-1,))] * given.calls)
    print(f"{given.calls:,} calls of nothing: {seconds:.1f} s, {1000 * seconds / given.calls:.2f} ms each.")
    rounds = rounds_of(given.seconds)
    calls = [(work, (rounds,))] * given.count
    (one, _), (two, each) = timed("local:1", calls), timed("local:2", calls)
    print(
        f"{given.count} calls of {given.seconds:g} s: {one:.1f} s by one worker, {two:.1f} s by two, {one / two:.2f}x."
    )
    print(f"The two were at a call for {100 * sum(each) / (2 * two):.0f} % of the time.")
    print(f"Load {os.getloadavg()[0]:.1f} after.")


if __name__ == "__main__":
    main()
