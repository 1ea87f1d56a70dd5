"""The code in README and documentation runs, at a size fit for tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALLER = {
    "d=500": "d=40",
    "500**": "40**",
    "steps=420": "steps=50",
    "time=2000.0": "time=20.0",
    "lr=20.5": "lr=1.5",
    "1_180_000": "4_000",
}


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_code_blocks_run(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    names = {}
    for block in blocks:
        for large, small in SMALLER.items():
            block = block.replace(large, small)
        exec(compile(block, page, "exec"), names)
    if page == "README.md":
        assert names["run"].status == "horizon"
        first, second = names["orbit"]["modes"][-2:, 0]
        assert abs(first - second) > 1  # the orbit that the comment promises
        assert {"horizon", "diverged"} <= set(names["runs"].status)
