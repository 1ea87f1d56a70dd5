import sys
from pathlib import Path

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

sys.path.insert(0, str(Path(__file__).parent))  # where shapes.py is
install_import_hook("linnet", "shapes.checked")

import linnet  # noqa: E402, F401  (switches on 64-bit floats before any test makes an array)

# every example has shapes of its own and compiles: few by default, many with --slow
for name, examples in (("quick", 2), ("slow", 60)):
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
    slow = config.getoption("--slow")
    hypothesis.settings.load_profile("slow" if slow else "quick")
    # compiling is most of the work of small tests; unoptimised it takes half the time and computes the same
    jax.config.update("jax_disable_most_optimizations", not slow)


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture
def key():
    return jax.random.key(20)


@pytest.fixture(autouse=True, scope="module")
def _free_compiled_code():
    """Hundreds of shapes compile in one run; drop them module by module."""
    yield
    jax.clear_caches()
