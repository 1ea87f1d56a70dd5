import math
import sys

import pytest

from linnet import cli


@pytest.fixture
def typed(request, monkeypatch, capsys, tmp_path):
    """Runs the module's COMMAND in this process and an empty folder: (exit code, output, errors in one line)."""

    def run(*arguments, columns=400):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["linnet", *request.module.COMMAND, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.guarded()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, " ".join(err.replace("│", " ").split())

    return run


@pytest.fixture
def close():
    """A tree of plain Python to compare with, its numbers to rounding; JSON has null for what is not finite."""

    def rounded(tree):
        if isinstance(tree, dict):
            return {name: rounded(part) for name, part in tree.items()}
        if isinstance(tree, list):
            return [rounded(part) for part in tree]
        if isinstance(tree, float):
            return pytest.approx(tree, rel=1e-9, abs=1e-12) if math.isfinite(tree) else None
        return tree

    return rounded
