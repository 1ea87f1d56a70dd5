import sys

import pytest

from linnet import cli


@pytest.fixture
def typed(request, monkeypatch, capsys, tmp_path):
    """Runs the module's COMMAND in this process and an empty folder: (exit code, output, errors in one line)."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "400")
        monkeypatch.setattr(sys, "argv", ["linnet", *request.module.COMMAND, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.guarded()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, " ".join(err.replace("│", " ").split())

    return run
