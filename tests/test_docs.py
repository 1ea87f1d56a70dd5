"""README and documentation run, and print and draw what they show."""

import importlib.util
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


spec = importlib.util.spec_from_file_location("run", ROOT / "docs" / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


def test_the_code_of_the_readme_runs(tmp_path):
    page = (ROOT / "README.md").read_text()
    _, names = run.execute(page, tmp_path, smaller=SMALLER, commands=False)
    assert names["run"].status == "horizon"
    first, second = names["orbit"]["modes"][-2:, 0]
    assert abs(first - second) > 1  # the orbit that the comment promises
    assert {"horizon", "diverged"} <= set(names["runs"].status)
    assert set(run.PICTURE.findall(page)) <= set(run.COMMANDS)
    assert all(large in page for large in SMALLER)


@pytest.mark.parametrize("page", [str(path.relative_to(run.DOCS)) for path in run.pages()])
def test_pages_print_and_draw_what_they_show(page):
    assert run.check(run.DOCS / page) == []


def test_pages_have_no_code_that_is_not_run():
    for path in run.pages():
        assert not re.search(r"^[ \t]+```", path.read_text(), flags=re.MULTILINE), f"{path}: a block is indented"


PAGE = """`numbers.csv`:

```csv
1,2
```

```python
from pathlib import Path
print("WORD", Path("numbers.csv").read_text().strip())
Path("picture.png").touch()
```

```text
WORD 1,2
```

```bash
linnet --version
linnet verify mixed/C999  # exits with 2
pip install nothing
```

![A picture](../images/picture.png)
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("```text\nWORD", "```text\nWORT"),
        ("WORD 1,2\n", "WORD 1,2\nand more\n"),
        ("images/picture.png", "images/other.png"),
        ("1,2\n```\n\n```python", "1,3\n```\n\n```python"),
    ],
)
def test_a_page_that_is_not_as_it_says_is_found(right, wrong, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    assert run.check(path) == []
    path.write_text(PAGE.replace(right, wrong))
    assert len(run.check(path)) == 1


def test_a_command_that_fails_is_found(tmp_path):
    with pytest.raises(RuntimeError, match="exits with 2"):
        run.execute(PAGE.replace("# exits with 2", ""), tmp_path)


def test_a_page_is_written_anew_up_to_durations(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "DOCS", tmp_path)
    (tmp_path / "images").mkdir()
    path = tmp_path / "page.md"
    path.write_text(PAGE.replace("WORD 1,2", "what it printed once"))
    assert run.check(path, write=True) == []
    assert path.read_text() == PAGE
    assert (tmp_path / "images" / "picture.png").exists()
    timed = "```python\nprint('done in 3 s')\n```\n\n```text\ndone in 12.5 s\n```\n"
    path.write_text(timed)
    assert run.check(path) == run.check(path, write=True) == []
    assert path.read_text() == timed


def test_the_figure_as_a_file_is_the_figure():
    text = (ROOT / "src" / "linnet" / "experiments" / "mixed_fig2.toml").read_text()
    assert Fig2().spec() == sweep.parse(text)
