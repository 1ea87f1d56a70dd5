"""`linnet probe`: what it prints, draws and writes of a record; PyTorch is not needed for it."""

import json
import re
import sys

import pytest

from linnet.probe.record import ProbeRecord

COMMAND = ("probe",)
LAYERS = ["0 and 1", "3.weight"]


def record(folder, *, measurements=20, edge=True, rule=True, lowest=-0.1, drift=0.2):
    """A training that comes to its edge, or does not."""
    kept = ProbeRecord({"parameters": 5699, "precision": "float32", "device": "cpu", "layers": LAYERS}, folder)
    for step in range(10 * measurements):
        late = edge and step > 40
        loss = 1.0 / (step + 1) * (1 + 0.2 * (step % 2) * late)
        kept.add([{"kind": "step", "step": step, "loss": loss, "moved": 0.1, "flip": -0.95 if late else 0.9}])
        if step % 10 > 1:
            continue
        top = min(20.5, 2 + 0.4 * step) if edge else 5.0
        line = {
            "kind": "measurement",
            "step": step,
            "batch_loss": loss,
            "gradient": 0.1,
            "sharpness": [top, 1.0, 0.5],
            "residual": [0.01, 0.2, 0.3],
            "lowest": lowest,
            "gradient_share": 0.5,
            "products": 9,
            "singular_values": [[2.0, 1.0, 0.5], [1.0, 0.5, 0.1]],
            "imbalance": [0.3, None],
            "drift": [drift * step / 200, None],
            "seconds": 0.1,
        }
        kept.add([line | ({"lr": 0.1, "threshold": 20.0, "ratio": top / 20.0} if rule else {})])
    kept.close()


def test_a_record_is_told_drawn_and_put_on_a_page(typed, tmp_path):
    record(tmp_path / "run")
    code, out, errors = typed("run", "--out", "picture.png", "--report", "page", columns=100)
    assert (code, errors) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("At the edge since step 40: the curvature is 1.02 of its threshold (step 191), and")
    assert "Curvature above its threshold: sharpness 20.5 ± 0.01 against 20 at lr 0.1 (step 191, 8 steps ago)." in out
    assert "Factors have lost their balance: it drifted by 0.19 of their squares in 0 and 1." in out
    (head,) = [i for i, line in enumerate(lines) if line.split()[:1] == ["step"]]
    steps = [line.split()[0] for line in lines[head + 1 : head + 14]]
    assert steps == ["0", "1", "10", "11", "20", "21", "…", "170", "171", "180", "181", "190", "191"]
    assert (tmp_path / "picture.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "At the edge since step 40" in page
    assert "5,699 trainable parameters" in page
    assert not re.search(r'(?:src|href)="(?!data:image/png;base64,|#)', page)
    assert page.count("<td>3.weight</td>") == 1


def test_json_has_all_of_it(typed, tmp_path):
    record(tmp_path / "run", measurements=3)
    code, out, _ = typed("run", "--json", "--report", "page")
    found = json.loads(out)
    assert code == 0
    kinds = ["statuses", "alarms", "forwards", "pairs", "measurements"]
    assert list(found) == ["about", "status", "verdict", *kinds, "page"]
    assert found["status"] == "unknown"
    assert [measurement["step"] for measurement in found["measurements"]] == [0, 1, 10, 11, 20, 21]
    assert found["page"] == "page/index.html"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"edge": False},
            "Curvature below its threshold: sharpness 5 ± 0.01 against 20 at lr 0.1 (step 191, 8 steps ago). Stable",
        ),
        ({"rule": False}, "There is no stability threshold to compare it with: give lr"),
        ({"lowest": -15.0}, "Near a saddle: the lowest curvature is -15 or less, the highest 20.5."),
        ({"drift": 0.01}, "Factors are as balanced as at initialization"),
        ({"measurements": 0}, "Nothing was measured yet."),
    ],
)
def test_other_trainings_have_other_words(typed, tmp_path, options, words):
    record(tmp_path / "run", **options)
    code, out, errors = typed("run", "--out", "picture.svg", "--report", "page")
    assert (code, errors) == (0, "")
    assert words in out


def test_status_alarms_and_critical_steps_are_tabulated(typed, tmp_path):
    kept = ProbeRecord({"parameters": 9, "precision": "float32", "device": "cpu", "layers": []}, tmp_path / "run")
    kept.add([{"kind": "step", "step": k, "loss": 1 / (k + 1)} for k in range(120)])
    alarm = {"kind": "alarm", "step": 110, "trigger": "loss", "factor": 4.0, "usual": 0.01, "cause": None}
    kept.add([alarm, alarm | {"cause": "bad_batch"}])
    kept.add([{"kind": "status", "step": 50, "status": "noise_floor", "sentence": "Noise floor: it is."}])
    line = {"kind": "forward", "step": 90, "own_low": 5.0, "own_high": None, "stochastic_edge": 0.19, "lr": 0.1}
    kept.add([line | {"c_other": 1.5, "c_other_low": 1.25, "c_other_high": 1.75, "parts": 8}])
    kept.close()
    code, out, _ = typed("run", "--report", "page", "--out", "picture.png", columns=100)
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["50", "noise", "floor"] in rows
    assert ["110", "alarm:", "loss", "bad", "batch"] in rows
    assert ["90", "above", "5", "1.5", "1.2", "to", "1.8", "0.19", "0.1"] in rows
    assert out.startswith("Alarm at step 110: the loss rose to 4 times its median. Cause: this batch.")
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    for words in ("<td>alarm: loss</td><td>bad batch</td>", "Noise floor: it is.", ">above 5<", ">1.2 to 1.8<"):
        assert words in page


def test_what_is_no_record_is_one_sentence(typed, tmp_path):
    code, _, errors = typed("nowhere")
    assert code == 2
    assert errors == "linnet: folder = 'nowhere' is not allowed: there is no record of a probe."
    record(tmp_path / "run", measurements=1)
    code, _, errors = typed("run", "--out", "picture.txt")
    assert code == 2
    assert ".png" in errors
    (tmp_path / "page").touch()
    code, _, errors = typed("run", "--report", "page")
    assert code == 2
    assert "there is a file where a folder should be" in errors


def test_pytorch_is_not_needed(typed, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    record(tmp_path / "run")
    assert typed("run", "--report", "page")[0] == 0
