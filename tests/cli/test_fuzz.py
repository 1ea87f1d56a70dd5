"""Random argument lists over all commands: no traceback, no exit 0 on nonsense, no endless run, and JSON that is JSON.

The lists are drawn from the commands themselves: every option that there is, with values of its type, and nonsense.
"""

import json
import re
import signal

import numpy as np
import pytest
import typer

from linnet.cli.app import app

COMMAND = ()
_LONGEST = 120  # seconds of a command before it counts as endless
_NONSENSE = ("abc", "nan", "1e999", "-", "1;2", "0x10", "\N{GREEK SMALL LETTER LAMDA}", "1e5000", "../..", "\x1b[2J")
_NUMBERS = ("0", "1", "2", "3", "-1", "0.1", "0.5", "1e-3", "1e-300", "1e30", "-0.0", "7", "16")
_COUNTS = ("0", "1", "2", "3", "5", "-1", "8", "1e3", "99999999999999999999", "4")
_LISTS = ("3,1,0.5", "3,2,1", "1", "2,2", "0,0", "3,,1", "1,nan", "-1,2", "1e200,1", "5,4,3,2,1", ",")
_WORDS = (
    "quick",
    "paper",
    "full",
    "gaussian",
    "balanced",
    "one-zero",
    "lora",
    "orthogonal",
    "",
    "mixed",
    "auto",
    "sum",
)
_CHEAP = {  # what would take long, or leave this machine, is given small or wrong
    "demo": {"d": ("4", "6", "0"), "rank": _COUNTS, "steps": ("3", "0"), "out": ("x.png", "x.exe")},
    "list": {"wanted": ("mixed", "mixed/C6", "nothing", "stability")},
    "show": {"name": ("mixed/fig1", "spectral/C8", "E1", "nothing"), "size": ("quick",), "run": ("--no-run",)},
    "verify": {"ids": ("mixed/C17", "mixed/C22", "x"), "size": ("quick", "x"), "cluster": ("x", "tcp://", "local:0")},
    "reproduce": {"ids": ("nothing", "mixed/fig", "stability"), "cluster": ("x", "local:-1", "tcp://a:b")},
    "sweep": {"places": ("x.toml", "good.toml", "bad.toml", "."), "cluster": ("x",), "out": ("s.zarr", "", "http://x")},
    "lab": {"page": ("nothing", "networks"), "port": _COUNTS},
    "fetch": {"names": ("digits", "nothing", "imagenet", "../mnist")},
    "check": {"names": ("digits", "nothing")},
}
_ALWAYS = {  # options without which a command would compute for minutes, or serve
    "demo": ("d", "steps"),
    "verify": ("ids",),
    "reproduce": ("ids",),
    "lab": ("page",),
    "show": ("run",),
}


def commands():
    """The names of every command and its parameters."""

    def below(command, path, context):
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                yield from below(command.get_command(context, name), (*path, name), context)
            if not command.invoke_without_command:
                return
        yield path, [one for one in command.params if one.name not in ("help", "version")]

    root = typer.main.get_command(app)
    context = root.make_context("linnet", [], resilient_parsing=True)
    return [(path, params) for path, params in below(root, (), context) if path]


def kind_of(parameter):
    """What a parameter says of its type, in the words of any version of typer and click."""
    described = getattr(getattr(parameter, "type_descriptor", None), "annotation", "")
    return f"{parameter.metavar} {described} {getattr(getattr(parameter, 'type', None), 'name', '')}".lower()


def drawn(rng, path, parameters):
    """An argument list, and whether something in it must be refused."""
    words, refused = list(path), False
    cheap, always = _CHEAP.get(path[-1], {}), _ALWAYS.get(path[-1], ())
    share = rng.uniform(0.05, 0.5)
    for one in parameters:
        argument = one.param_type_name == "argument"
        if not (one.name in always or rng.random() < (0.9 if argument else share)):
            continue
        if one.name in cheap and isinstance(cheap[one.name][0], str) and cheap[one.name][0].startswith("--"):
            words.append(str(rng.choice(cheap[one.name])))
            continue
        flag = getattr(one, "is_flag", False)
        kind = kind_of(one)
        count, number = "integer" in kind, "float" in kind
        wrong = not flag and (count or number) and one.name not in always and rng.random() < 0.15
        if wrong:
            value, refused = "abc", True
        elif one.name in cheap:
            value = str(rng.choice(cheap[one.name]))
        elif rng.random() < 0.1:
            value = str(rng.choice(_NONSENSE))
        elif count:
            value = str(rng.choice(_COUNTS))
        elif number:
            value = str(rng.choice(_NUMBERS))
        elif "path" in kind or one.name in ("data", "out", "plot", "report", "file", "folder"):
            value = str(rng.choice(("good.csv", "bad.csv", "x.png", "there", "no/where", "good.toml", "bad.toml")))
        else:
            value = str(rng.choice((*_LISTS, *_WORDS)))
        words += [value] if argument else [str(rng.choice(one.opts)), *([] if flag else [value])]
    if rng.random() < 0.1:
        words, refused = [*words, str(rng.choice(("--no-such", "--lrr", "-q")))], True
    return words, refused


def problems(words, refused, code, out, err):
    """What is wrong about the end of a command."""
    if code not in (0, 1, 2):
        yield f"exit code {code!r}"
    if "Traceback" in out + err:
        yield "a traceback"
    if refused and code == 0:
        yield "exit 0 on nonsense"
    if code == 2 and not err.strip():
        yield "refused without a word"
    if "\x1b[2J" in out + err:
        yield "control characters of an argument are printed"
    if code in (0, 1) and "--json" in words and "--help" not in words:
        try:
            json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
        except ValueError:
            yield f"no JSON: {out[:80]!r}"


_ABOUT = {"format": 3, "parameters": 7, "precision": "float32", "device": "cpu", "layers": ["a", "b"]}
_PAIR = {
    "layer": 0,
    **dict.fromkeys(("value", "slope", "share", "reach", "imbalance", "curvature", "sharpness", "residual"), 0.5),
    **dict.fromkeys(("end", "growth", "sharpness_end", "largest_lr"), 1.5),
    "regime": "rich",
    "assumptions": {"product": 0.01, "aligned": 0.1, "sharpness": 0.2},
}
_MEASURED = {
    "kind": "measurement",
    "step": 30,
    **dict.fromkeys(("batch_loss", "gradient", "gradient_share", "lr", "ratio", "adaptive", "change"), 0.5),
    **dict.fromkeys(("threshold", "age", "memory", "adaptive_residual", "fresh", "decay", "saddle", "escape"), 2.0),
    "saddle_share": 0.9,
    "saddle_layer": 1,
    "products": 9,
    "lowest": -0.5,
    "seconds": 0.1,
    "reason": "none",
    **dict.fromkeys(("output_mean", "output_spread", "label_spread"), 1.0),
    "sharpness": [2.0, 1.0],
    "residual": [0.1, None],
    "singular_values": [[1.0, 0.5], [0.5, 0.0]],
    **{name: [0.5, None] for name in ("imbalance", "drift", "alignment", "growth", "mode_value", "mode_growth")},
}
_FORWARD = {
    "kind": "forward",
    "step": 40,
    **dict.fromkeys(("own_low", "c_other", "c_other_low", "stochastic_edge", "lr", "flip", "c_own"), 0.9),
    "own_high": None,
    "c_other_high": 1.1,
    "parts": 8,
    "age": 200.0,
    "moved": 0.1,
    "forwards": 9,
}
_LINES = [
    *({"kind": "step", "step": step, "loss": 1 / (1 + step), "moved": 0.1, "flip": -0.9} for step in range(50)),
    {"kind": "anchor", "step": 20, "anchor": 0.5},
    {
        "kind": "check",
        "step": 20,
        "passes": 2,
        "gradient_scale": 0.5,
        "weight_decay": 0.1,
        "thawed": 2,
        "kept": True,
        "left_out": 2,
        "left_out_name": "1.weight",
    },
    {"kind": "check", "step": 21, "dead": 0.9, "dead_layer": "a"},
    {"kind": "alarm", "step": 25, "trigger": "loss", "factor": 4.0, "usual": 0.1, "cause": None},
    {"kind": "status", "step": 26, "status": "noise_floor", "sentence": "Noise floor."},
    {"kind": "pairs", "step": 30, "pairs": [_PAIR]},
    _MEASURED,
    _FORWARD,
]
_VALUES = (None, True, "<script>", "", [], [1.0], [[1.0]], {}, 0, -1, 10**400, 2**63, 1e308, -1e308, 1e-320, 0.0, -1.0)


def hostile(rng, folder):
    """A folder of a probe with one to three values of its lines, or of its description, replaced or left out."""
    about, lines = dict(_ABOUT), [dict(line) for line in _LINES]
    for _ in range(int(rng.integers(1, 4))):
        line = about if rng.random() < 0.1 else lines[int(rng.integers(45, len(lines)))]
        if line.get("kind") == "pairs" and rng.random() < 0.8:
            pairs = line.get("pairs")
            if isinstance(pairs, list) and pairs and isinstance(pairs[0], dict):  # not replaced before
                line["pairs"] = [dict(pairs[0])]
                line = line["pairs"][0]
        if not line:
            continue
        name = str(rng.choice(list(line)))
        if rng.random() < 0.2:
            del line[name]
            continue
        value = _VALUES[int(rng.integers(len(_VALUES)))]
        if isinstance(line[name], list) and line[name] and rng.random() < 0.6:
            value = [value, *line[name][1:]] if rng.random() < 0.7 else [*line[name], value]
        line[name] = value
    folder.mkdir(exist_ok=True)
    (folder / "probe.json").write_text(json.dumps(about))
    (folder / "record.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Files to name; nothing is fetched and no browser is opened."""
    rng = np.random.default_rng(0)
    rows = ["a,b,y", *(",".join(f"{x:.3f}" for x in row) for row in rng.normal(size=(9, 3)))]
    (tmp_path / "good.csv").write_text("\n".join(rows))
    (tmp_path / "bad.csv").write_bytes(b"a,b\n1,\xff\n<script>,2,3\n")
    (tmp_path / "good.toml").write_text(
        "[data]\nspectrum = [3.0, 1.0]\n[network]\ndepth = 2\n[init]\nkind = 'balanced'\n"
    )
    (tmp_path / "bad.toml").write_text("[data\nspectrum = nan")
    (tmp_path / "there").mkdir()
    monkeypatch.setenv("LINNET_DATA", str(tmp_path / "there"))
    return tmp_path


def fuzzed(typed, seed, count):
    """Failures of so many lists, one in turn for each command."""
    every, failures = commands(), []

    def late(*_):
        raise TimeoutError("endless")

    before = signal.signal(signal.SIGALRM, late)
    try:
        for index in range(count):
            rng = np.random.default_rng([seed, index])
            path, parameters = every[index % len(every)]
            words, refused = drawn(rng, path, parameters)
            signal.alarm(_LONGEST)
            try:
                code, out, err = typed(*words)
                found = list(problems(words, refused, code, out, err))
            except Exception as error:
                found = [f"{type(error).__name__}: {error}"]
            finally:
                signal.alarm(0)
            failures += [f"{' '.join(map(repr, words))}: {one}" for one in found]
    finally:
        signal.signal(signal.SIGALRM, before)
    return failures


def test_the_lists_cover_every_command_and_option():
    every = commands()
    names = {path for path, _ in every}
    assert {("predict", "network"), ("data", "fetch"), ("sweep",), ("probe",), ("lab",), ("reproduce",)} <= names
    seen = {path: set() for path, _ in every}
    for index in range(60 * len(every)):
        path, parameters = every[index % len(every)]
        words, _ = drawn(np.random.default_rng([1, index]), path, parameters)
        seen[path] |= {word for word in words if re.match(r"--[a-z]", word)}
    for path, parameters in every:
        for one in parameters:
            if one.param_type_name != "argument":
                assert seen[path] & {*one.opts, *one.secondary_opts}, (path, one.name)


def test_what_is_looked_for_is_found():
    assert list(problems(["x"], True, 0, "", ""))
    assert list(problems(["x"], False, 3, "", "")) == ["exit code 3"]
    assert list(problems(["x", "--json"], False, 0, "{", ""))
    with pytest.raises(pytest.fail.Exception, match="NaN in JSON"):
        list(problems(["x", "--json"], False, 0, '{"a": NaN}', ""))
    assert list(problems(["x"], False, 2, "", " ")) == ["refused without a word"]
    assert not list(problems(["x", "--json"], False, 0, "[null]", ""))


def probed(typed, folder, seed, count):
    """Failures of `linnet probe` on so many hostile folders, and how many of them were refused."""
    failures, refused = [], 0
    for index in range(count):
        rng = np.random.default_rng([seed, index])
        hostile(rng, folder / "probe")
        extra = ("--report", "page") if index % 2 else ("--json", "--out", "x.png")
        try:
            code, out, err = typed("probe", "probe", *extra)
            found = list(problems(extra, False, code, out, err))
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        refused += not found and code == 2
        failures += [f"{seed}, {index}: {one}" for one in found]
    return failures, refused


def test_the_record_that_is_spoiled_is_good(there, typed):
    (there / "probe").mkdir()
    (there / "probe" / "probe.json").write_text(json.dumps(_ABOUT))
    (there / "probe" / "record.jsonl").write_text("\n".join(map(json.dumps, _LINES)))
    code, _, err = typed("probe", "probe", "--report", "page", "--out", "x.png")
    assert (code, err) == (0, "")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of a plot of numbers that are nearly too large
def test_hostile_folders_of_a_probe(there, typed):
    failures, refused = probed(typed, there, 0, 40)
    assert failures == []
    assert 10 < refused < 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_thousand_hostile_folders_of_a_probe(there, typed):
    assert probed(typed, there, 1, 1000)[0] == []


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarms")
def test_sixty_random_lists(there, typed):
    assert fuzzed(typed, 0, 60) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="this system has no alarms")
def test_two_thousand_random_lists(there, typed):
    assert fuzzed(typed, 1, 2000) == []
