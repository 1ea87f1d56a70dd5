import collections
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# The workers have a core each: threads of BLAS and PyTorch would fight for it. Read when they load; commands inherit.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import shapes

shapes.install()

import linnet  # noqa: E402, F401  (switches on 64-bit floats before any test makes an array)

_MANY = 1500  # compiled programs that one worker holds: a megabyte and three memory maps each
_COMPILING = 2  # examples by default of a property whose every example has shapes of its own and compiles
for name, examples in (("quick", 25), ("slow", 60)):
    hypothesis.settings.register_profile(
        name,
        deadline=None,
        max_examples=examples,
        derandomize=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config):
    gc.set_threshold(100_000, 50, 1000)  # traces make millions of objects that stay: looking through them is wasted
    slow = config.getoption("--slow")
    hypothesis.settings.load_profile("slow" if slow else "quick")
    if not slow:
        _compile_quickly()
    _share_compiled_programs(config)


def _compile_quickly():
    """Compiling is most of the work of small tests: unoptimized it takes half the time and computes the same."""
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for commands that tests start
    if jax.__version_info__[:2] != (0, 10):
        return  # XLA ends a process that knows a flag by another name
    # without the passes that write fast kernels; read when the first array is made
    quick = ("use_fusion_emitters=false", "parallel_codegen_split_count=1", "emitter_verification_level=0")
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *(f"--xla_cpu_{flag}" for flag in quick)])


def _share_compiled_programs(config):
    """What one worker, command or earlier run has compiled, the others read (`--cache-clear` empties it)."""
    if not hasattr(config, "cache"):  # with -p no:cacheprovider each compiles for itself
        return
    folder = config.cache.mkdir("compiled")
    for name, value in (
        ("jax_compilation_cache_dir", str(folder)),
        ("jax_persistent_cache_min_compile_time_secs", 0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    sets = collections.Counter()  # of parameters, by test
    for item in items:
        if "compiles" in item.keywords:
            item.obj = hypothesis.settings(max_examples=_COMPILING)(item.obj)
        test = item.nodeid.partition("[")[0]
        sets[test] += 1
        few = item.get_closest_marker("quick")
        if "slow" in item.keywords or (few is not None and sets[test] > few.args[0]):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """What is marked `computes` is compiled as for users: it takes longer to run than to compile."""
    if not item.config.getoption("--slow"):
        jax.config.update("jax_disable_most_optimizations", "computes" not in item.keywords)
    return (yield)


@pytest.fixture
def key():
    return jax.random.key(20)


_compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, _, **__: _compiled.append(1) if "backend_compile" in event else None
)


@pytest.fixture(autouse=True, scope="module")
def _free_compiled_code():
    """Programs fill memory and its map; modules share them, so they are dropped when there are many."""
    yield
    if len(_compiled) > _MANY:
        _compiled.clear()
        jax.clear_caches()


class Started:
    """A `linnet` command in a process of its own, with all that it starts in turn."""

    # Ctrl-C is switched on: where the tests run in the background, it is off and would be inherited
    CODE = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from linnet.cli import main; sys.argv = ['linnet', *sys.argv[1:]]; main()"
    )

    def __init__(self, *arguments, **options):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, *map(str, arguments)],
            text=True,
            start_new_session=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )

    def until(self, event, *, alive=True, most=300):
        """Waits for an event; the test fails if the command ends before it, or if it does not come."""
        last = time.monotonic() + most
        while not event():
            assert not alive or self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < last, "what was waited for did not come"
            time.sleep(0.01)

    def family(self):
        """The running processes by id, each with the seconds of computing that it has used."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group, *rest = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:  # gone meanwhile
                continue
            if int(group) == self.process.pid and state != "Z":
                found[int(stat.parent.name)] = (int(rest[8]) + int(rest[9])) / os.sysconf("SC_CLK_TCK")
        return found

    def worked(self, seconds):
        """An event: from now on, so much has been computed."""
        before = sum(self.family().values())
        return lambda: sum(self.family().values()) > before + seconds

    def finished(self):
        """Waits for a good end; gives what was told on standard output."""
        told, errors = self.process.communicate()
        assert self.process.returncode == 0, errors
        return told

    def interrupt(self):
        """Ctrl-C; gives the exit code and what was told on standard error."""
        self.process.send_signal(signal.SIGINT)
        _, told = self.process.communicate(timeout=300)
        return self.process.returncode, told

    def end(self):
        """Ends all of them."""
        for process in self.family():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait()


@pytest.fixture
def started():
    """A function that starts `linnet` commands; whatever becomes of the test, they end with it."""
    children = []

    def start(*arguments, **options):
        children.append(Started(*arguments, **options))
        return children[-1]

    yield start
    for child in children:
        child.end()
