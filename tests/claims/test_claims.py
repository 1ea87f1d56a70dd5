"""Every claim and erratum behaves as stated, and fails with its negative control."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import linnet as ln
from linnet import claims
from linnet.claims import claim as frame
from linnet.theory import feature

ENTRIES = claims.registry()
COMPUTED = [entry for entry in ENTRIES.values() if entry.check is not None]
CONVOLUTIONS = {"stability/E27"}
PAGES = sorted((Path(__file__).parents[2] / "docs" / "theory").glob("*.md"))
# many trainings, which `linnet verify` computes too
LONG = {
    *("flows/C5", "flows/C8", "flows/C9", "flows/C10", "mixed/C16", "mixed/C34", "mixed/C35"),
    *("nonlocal/C15", "nonlocal/C25", "nonlocal/C29"),
    *("stability/C19", "stability/C20", "stability/C24", "stability/C25", "stability/E27"),
}
MARKED = [
    pytest.param(
        entry, marks=[pytest.mark.computes] * (entry.id in CONVOLUTIONS) + [pytest.mark.slow] * (entry.id in LONG)
    )
    for entry in COMPUTED
]


@pytest.mark.parametrize("entry", MARKED, ids=lambda entry: entry.id)
def test_entry_behaves_as_stated_and_can_fail(entry):
    """With the negative control the verdict is the opposite (in one test: what is compiled serves both)."""
    verdict = entry.verify("quick")
    assert verdict.holds == entry.expected, verdict
    assert -1 <= verdict.margin <= 1
    assert verdict.holds == (verdict.margin >= 0)
    control = entry.judge(frame.Measured(list(control_findings(entry)), 0.0))
    assert control.holds != entry.expected, control


def control_findings(entry):
    """The findings with the negative control, up to the first that fails where all ought to hold."""
    for finding in entry.check("quick", **entry.negative_control):
        yield finding
        if entry.expected and not finding.printed and not finding.holds:
            return


def constant_logarithm(which):
    """The time of Theorem 4.1 with a constant in place of the logarithm of 1/v0, or of that of 1/eps."""

    def times(*of, v0, lr, eps):
        found = feature.source_times(*of, v0=v0, lr=lr, eps=eps)
        unit = found.first / math.log(1 / v0)
        first, rest = found.first, found.total - found.first
        return feature.Times(*((9 * unit, 9 * unit + rest) if which == "v0" else (first, first + 9 * unit)))

    return times


@pytest.mark.parametrize("which", ["v0", "eps"])
def test_each_logarithm_of_the_time_of_feature_learning_is_needed(which):
    findings = ENTRIES["feature/C27"].check("quick", times=constant_logarithm(which))
    assert any(not finding.holds for finding in findings)


@pytest.mark.slow
@pytest.mark.parametrize("entry", COMPUTED, ids=lambda entry: entry.id)
def test_entry_at_full_size(entry):
    verdict = entry.verify("full")
    assert verdict.holds == entry.expected, verdict


def test_entries_are_complete():
    for entry in ENTRIES.values():
        assert entry.place
        assert entry.statement.strip()
        if isinstance(entry, claims.Claim):
            assert entry.kind in frame.KINDS
            assert entry.negative_control, f"{entry.id} has no negative control"
            assert entry.statement.endswith(".")
        else:
            assert entry.grade in frame.GRADES
            assert entry.check is None or entry.negative_control, f"{entry.id} has no negative control"
            assert entry.evidence
            assert entry.grade != "error" or entry.reading, f"{entry.id} has no charitable reading"


def test_findings_of_arrays():
    """The number that is closest to the bound, or beyond it, decides; NaN is never skipped."""
    assert claims.at_most([1.0, 3.0], 2.0).measured == 3
    assert claims.at_least(np.array([[1.0, 3.0]]), 2.0).measured == 1
    assert not claims.at_most([1.0, math.nan], 2.0).holds
    assert not claims.at_least([3.0, math.nan], 2.0).holds
    assert claims.close(np.array([2.0, 3.0]), 2.0, rtol=0.4, n=1) == claims.at_most(0.5, 0.4, n=1)
    assert claims.close(np.array([2.0, 3.0]), [2.0, 2.5], atol=0.6, n=1) == claims.at_most(0.5, 0.6, n=1)
    assert not claims.close(math.nan, 1.0, atol=1.0).holds
    assert claims.near(1.5, 2.0, 0.25, n=1) == claims.within(1.5, 1.75, 2.25, n=1)


def test_findings_and_margins():
    assert frame.at_most(1.0, 2.0).holds
    assert frame.at_most(1.0, 2.0).margin == 0.5
    assert not frame.at_most(float("nan"), 2.0).holds
    assert not frame.at_least(float("nan"), 2.0).holds
    assert frame.at_most(float("nan"), 2.0).margin == -1.0
    assert frame.at_least(4.0, 2.0).margin == 0.5
    assert frame.at_least(1.0, 2.0).margin == -0.5
    assert frame.at_most(-1.0, 0.0).margin == 1.0
    assert frame.within(1.5, 1.0, 3.0).margin == 0.5
    assert frame.within(2.0, 1.0, 3.0).margin == 1.0
    assert frame.at_least(3e6, 1.0).margin < 1.0


SIZES = st.floats(1e-9, 1e9)


@given(
    st.lists(SIZES | SIZES.map(float.__neg__) | st.sampled_from([0.0, 1.0, math.nan, math.inf]), min_size=3, max_size=3)
)
def test_margins_obey_their_definition(numbers):
    measured, low, high = numbers[0], *sorted(0.0 if math.isnan(x) else x for x in numbers[1:])
    sides = []
    if math.isfinite(low) and math.isfinite(high):
        sides = [frame.within(measured, low, high)]
    sides += [frame.at_most(measured, high)] * math.isfinite(high) + [frame.at_least(measured, low)] * math.isfinite(
        low
    )
    for finding in sides:
        assert -1 <= finding.margin <= 1
        assert finding.holds == (finding.margin >= 0)


def entry_of(findings, **options):
    return frame.Claim("mixed/C999", "A statement.", "nowhere", "exact", lambda size: iter(findings), **options)


def test_a_check_must_measure_inside_its_hypotheses():
    with pytest.raises(ln.InputError, match="found nothing"):
        entry_of([]).verify()
    outside = entry_of([frame.at_most(0.0, 1.0, w=1)], hypotheses={"w > 2": lambda case: case["w"] > 2})
    with pytest.raises(ln.InputError, match="outside its hypothesis 'w > 2'"):
        outside.verify()
    one_bad = entry_of([frame.at_most(0.0, 1.0), frame.at_most(2.0, 1.0, where="here")]).verify()
    assert not one_bad.holds
    assert "where='here'" in one_bad.detail


def test_an_erratum_needs_both_sides():
    def entry(*findings):
        return frame.Erratum("mixed/E999", "p", "error", "a", "b", "c", lambda size: iter(findings), "r")

    right, wrong = frame.at_most(0.0, 1.0), frame.at_most(2.0, 1.0)
    assert entry(right, frame.as_printed(wrong)).verify().holds
    assert not entry(right, frame.as_printed(right)).verify().holds
    assert not entry(wrong, frame.as_printed(wrong)).verify().holds
    assert not entry(right).verify().holds
    for parts in (
        [right, frame.as_printed(wrong)],
        [frame.as_printed(wrong)],
        [right, frame.as_printed(right)],
        [wrong, frame.as_printed(wrong)],
        [right],
    ):
        verdict = entry(*parts).verify()
        assert verdict.holds == (verdict.margin >= 0)
        assert -1 <= verdict.margin <= 1
    assert entry(right, frame.as_printed(wrong)).verify().margin == 0.5  # the print is wrong by half of what it is
    with pytest.raises(ln.InputError, match="slip of notation"):
        ENTRIES["mixed/E1"].verify()


def test_the_printed_form_must_fail_in_every_reading():
    def entry(*findings):
        return frame.Erratum("mixed/E999", "p", "error", "a", "b", "c", lambda size: iter(findings), "r")

    right, wrong = frame.at_most(0.0, 1.0), frame.at_most(2.0, 1.0, d=3)
    kind = frame.as_printed(wrong, "another loss")
    assert kind.case == {"d": 3, "reading": "another loss"}
    assert entry(right, frame.as_printed(wrong), kind).verify().holds
    survives = entry(right, frame.as_printed(wrong), frame.as_printed(right, "another loss")).verify()
    assert not survives.holds
    assert survives.margin < 0
    assert "another loss" in survives.detail


def test_an_error_needs_its_reading():
    with pytest.raises(ln.InputError, match="mixed/E998: an error needs its reading"):
        frame.record_erratum("mixed/E998", "error", "p", printed="a", corrected="b")
    assert "mixed/E998" not in claims.registry()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pages_have_the_grades_of_the_registry(page):
    named = re.findall(r"((?:`\w+/E\d+`(?:, )?)+) \((\w+?)s?\)", page.read_text(encoding="utf-8"))
    for names, grade in named:
        for name in re.findall(r"`(\w+/E\d+)`", names):
            assert ENTRIES[name].grade == grade, name


def test_finding_entries():
    assert [e.id for e in claims.find(["mixed/C2", "mixed/C1"])] == ["mixed/C2", "mixed/C1"]
    assert all(e.check is not None for e in claims.find([], paper="mixed"))
    assert {e.paper for e in claims.find([], paper="feature")} == {"feature"}
    with pytest.raises(ln.InputError, match=r"'mixed/C99' is not known: did you mean mixed/C9 or"):
        claims.find(["mixed/C99"])
    with pytest.raises(ln.InputError, match=r"'mixed/c6' is not known: did you mean mixed/C6\?"):
        claims.find(["mixed/c6"])
    with pytest.raises(ln.InputError, match="'42' is not known: linnet list shows what there is"):
        claims.find(["42"])
    with pytest.raises(ln.InputError, match="paper = 'blurred'"):
        claims.find([], paper="blurred")
    with pytest.raises(ln.InputError, match="size = 'huge'"):
        ENTRIES["mixed/C17"].verify("huge")
    ids = list(ENTRIES)
    assert ids.index("mixed/C2") < ids.index("mixed/C10") < ids.index("mixed/E1")


def test_parameters_are_what_a_check_takes_besides_its_subject():
    for entry in COMPUTED:
        assert not set(entry.parameters) & set(entry.negative_control)
    assert ENTRIES["mixed/C6"].parameters == {"d": None, "seed": 0}
    assert ENTRIES["mixed/C7"].parameters == {}
    assert ENTRIES["mixed/E1"].parameters == {}


@pytest.mark.parametrize("name", ["mixed/C19", "mixed/C20", "mixed/C21", "nonlocal/C17", "feature/C14"])
def test_other_seeds_measure_something_else_and_agree(name):
    entry = ENTRIES[name]
    changes = claims.settle([entry], {"seed": 100})[name]
    changed, drawn = entry.measure(**changes), entry.measure()
    assert entry.judge(changed).holds
    assert sum(f.measured for f in changed.findings) != sum(f.measured for f in drawn.findings)


def test_changes_are_settled_where_they_belong():
    entries = [ENTRIES[name] for name in ("mixed/C6", "mixed/C17", "mixed/C7")]
    assert claims.settle(entries, {"d": 20, "seed": 3}) == {
        "mixed/C6": {"d": 20, "seed": 3}, "mixed/C17": {"seed": 3}, "mixed/C7": {}
    }  # fmt: skip
    with pytest.raises(ln.InputError, match=r"set = 'x' is not allowed: mixed/C6 has d, seed; mixed/C17 has seed\."):
        claims.settle(entries, {"x": 1})
    with pytest.raises(ln.InputError, match=r"set = 'x' is not allowed: mixed/C7 has no parameters\."):
        claims.settle(entries[2:], {"x": 1})
    with pytest.raises(ln.InputError, match=r"set = 'closure' is not allowed"):  # the subject is no parameter
        claims.settle(entries, {"closure": 1})
    for changes, words in (({"d": 3}, "d = 3 is not allowed"), ({"seed": "x"}, "seed = 'x' is not allowed")):
        with pytest.raises(ln.InputError, match=f"mixed/C6: {words}"):
            claims.settle(entries[:1], changes)


STATISTICAL = [entry for entry in ENTRIES.values() if entry.kind == "statistical"]


@pytest.mark.parametrize("entry", STATISTICAL, ids=lambda entry: entry.id)
def test_statistical_claims_say_how_they_are_tested(entry):
    assert (entry.level is None) == (entry.tests == 0)
    assert entry.tests or entry.band
    assert entry.significance
    assert "seed" in entry.parameters, "--seeds could not repeat it"
    if entry.level is not None:
        assert 0 < entry.level < 0.05
        assert f"{entry.tests} test" in entry.significance


def test_the_error_of_all_statistical_claims_is_on_their_page():
    page = " ".join((PAGES[0].parents[1] / "claims.md").read_text(encoding="utf-8").split())
    tests, error = sum(e.tests for e in STATISTICAL), sum(e.error for e in STATISTICAL)
    assert f"All {len(STATISTICAL)} together have {tests} tests" in page
    assert f"is at most {error:.2g}, the sum" in page


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("statistical", {}, "what a statistical claim has"),
        ("exact", {"band": "wide"}, "what a statistical claim has"),
        ("statistical", {"level": 0.01}, "belong together"),
        ("statistical", {"tests": 2, "band": "wide"}, "belong together"),
        ("statistical", {"tests": 2, "level": 1.5}, "belong together"),
    ],
)
def test_levels_and_tests_belong_to_statistical_claims(kind, given, words):
    with pytest.raises(ln.InputError, match=words):
        frame.claim("mixed/C998", kind, "nowhere", negative_control={}, **given)(lambda size: iter(()))
    assert "mixed/C998" not in claims.registry()


def test_levels_are_those_of_the_normal_and_of_students_law():
    assert frame.two_sided(1.959964) == pytest.approx(0.05, rel=1e-6)
    assert frame.one_sided(1.644854) == pytest.approx(0.05, rel=1e-6)
    assert frame.two_sided(2.085963, 20) == pytest.approx(0.05, rel=1e-6)
    entry = entry_of([], level=0.01, tests=3, band="the rest to rounding")
    assert entry.error == pytest.approx(0.03)
    assert entry.significance == "3 tests at level 0.01; the rest to rounding"
