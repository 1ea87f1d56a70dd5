"""The command line as a user meets it."""

import json
import subprocess
import sys

import pytest


def linnet(*arguments, cwd=None):
    code = "import sys; from linnet.cli import main; sys.argv = ['linnet', *sys.argv[1:]]; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd)


def test_help_and_version():
    assert "demo" in linnet("--help").stdout
    assert linnet("--version").stdout.startswith("linnet 0.")


def test_demo_draws_and_tells(tmp_path):
    told = linnet("demo", "--d", "20", "--rank", "2", "--steps", "60", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "Test error" in told.stdout
    assert (tmp_path / "linnet-demo.png").stat().st_size > 10_000
    result = linnet("demo", "--d", "20", "--rank", "2", "--steps", "60", "--json", "--out", "x.svg", cwd=tmp_path)
    found = json.loads(result.stdout)
    assert found["status"] == "horizon"
    assert 0 < found["best_test_error"] < 1.5
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


def test_list_and_verify():
    listed = json.loads(linnet("list", "--json").stdout)
    assert {c["id"] for c in listed["claims"]} >= {"mixed/C1", "mixed/C25"}
    assert {e["grade"] for e in listed["errata"]} == {"error", "misprint", "clarification"}
    assert listed["experiments"] == []
    assert "mixed/C17" in linnet("list").stdout
    told = linnet("verify", "mixed/C17", "mixed/C22", "mixed/E20", "--json")
    assert told.returncode == 0, told.stderr
    result = json.loads(told.stdout)
    assert result["failed"] == 0
    assert [c["holds"] for c in result["claims"]] == [True, False, True]  # C22 is refuted
    assert set(result["claims"][0]) == {
        "id", "paper", "kind", "statement", "holds", "measured", "required", "margin", "seconds", "detail"
    }  # fmt: skip
    table = linnet("verify", "mixed/C17").stdout
    assert "holds" in table
    assert "1 verified" in table
    for arguments, words in ((("mixed/C99",), "'mixed/C99' is not known"), (("--paper", "x"), "paper = 'x'")):
        wrong = linnet("verify", *arguments)
        assert wrong.returncode == 2
        assert words in wrong.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rank", "0"), "rank = 0"),
        (("--rank", "50", "--d", "20"), "rank = 50"),
        (("--d", "1"), "d = 1"),
        (("--steps", "0"), "steps = 0"),
        (("--out", "picture.bmp"), "must end in"),
        (("--out", "nowhere/x.png"), "does not exist"),
        (("--gamma-w", "-1"), "gamma_w = -1"),
        (("--d", "many"), "--d"),
        (("--speed", "3"), "No such option"),
        (("--out", "x[/].bmp"), "must end in"),
        (("--gamma-w", "100"), "gamma_w = 100"),
        (("--seed", "99999999999999999999999"), "seed"),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, tmp_path):
    told = linnet("demo", *arguments, cwd=tmp_path)
    assert told.returncode == 2
    assert words in " ".join(told.stderr.replace("│", " ").split())
    assert "Traceback" not in told.stderr
