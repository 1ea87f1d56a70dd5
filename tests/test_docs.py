"""The code in README and documentation runs, at a size fit for tests."""

import re
from pathlib import Path

import pytest

from linnet import sweep
from linnet.experiments.mixed import Fig2

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


def test_the_sweep_of_the_documentation_runs(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "sweeps.md").read_text()
    (described,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "target.csv").write_text("2,0\n0,1\n")
    counts = sweep.run(sweep.parse(described.replace("count = 12", "count = 3")), tmp_path / "stability.zarr")
    assert counts["horizon"] + counts["diverged"] == 6
    names = {}
    exec(compile(code, "sweeps.md", "exec"), names)
    loss = names["data"]["loss"].sel(alpha=0.1)
    assert loss[0] < 1e-3 < loss[-1]  # a small step learns, one beyond the edge does not settle


def test_the_figure_as_a_file_is_the_figure():
    text = (ROOT / "src" / "linnet" / "experiments" / "mixed_fig2.toml").read_text()
    assert Fig2().spec() == sweep.parse(text)
