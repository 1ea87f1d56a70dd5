"""The places that claims and errata cite are in their papers."""

import re
import tomllib
from pathlib import Path

import pytest

from linnet.claims import Erratum, registry

ROOT = Path(__file__).parents[2]
LABELS = tomllib.loads((ROOT / "tests" / "labels.toml").read_text(encoding="utf-8"))
KINDS = {kind: kind for kind in LABELS["feature"]} | {"proposition": "proposition", "corollary": "corollary"}
KINDS |= {"appendix": "section", "appendice": "section"}
KIND = re.compile(rf"\b({'|'.join(KINDS)})s?(?= )", re.IGNORECASE)
NUMBER = re.compile(r"(?:,? and |, | to | )((?:[A-Q]\.)?\d+(?:\.\d+)?|[A-Q](?!\w))[a-d]?(?:\([ivx\d]+\))*")
EQUATION = re.compile(r"(?<![\w)])\(((?:[A-D]\.)?\d+(?:\.\d+)?)[ab]?\)")  # no item of a statement, as in 4.1(4)
WORDS = ("introduction",)  # places without a number


def cited(text):
    """The labels in a text: pairs of a kind and a number."""
    found = []
    for word in KIND.finditer(text):
        at = word.end()
        while number := NUMBER.match(text, at):
            found.append((KINDS[word[1].lower()], number[1]))
            at = number.end()
    return found + [("equation", number) for number in EQUATION.findall(text)]


def known(paper, kind, number):
    for part in LABELS[paper].get(kind, "").split():
        first, _, last = part.partition("-")
        head, tail = first.rpartition(".")[0], last.rpartition(".")[2]
        if not last and number == first:
            return True
        own_head, _, own = number.rpartition(".")
        if last and own_head == head and own.isdigit() and int(first.rpartition(".")[2]) <= int(own) <= int(tail):
            return True
    return False


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("Theorem 2, lazy; Proposition D.1", [("theorem", "2"), ("proposition", "D.1")]),
        ("B.1", []),
        ("Lemmas C.3 and C.4, Theorems C.11 and C.12",
         [("lemma", "C.3"), ("lemma", "C.4"), ("theorem", "C.11"), ("theorem", "C.12")]),
        ("Theorem 3.1(i), corrected", [("theorem", "3.1")]),
        ("Lemma 5.2(i), (ii), with the missing condition", [("lemma", "5.2")]),
        ("(183), (184), (188)", [("equation", "183"), ("equation", "184"), ("equation", "188")]),
        ("Lemma 18, (35)", [("lemma", "18"), ("equation", "35")]),
        ("equations (10) and (11)", [("equation", "10"), ("equation", "11")]),
        ("(C.13), proof of Theorem 3.1(i)", [("theorem", "3.1"), ("equation", "C.13")]),
        ("appendix B.4, text on figure 14", [("section", "B.4"), ("figure", "14")]),
        ("Figures 5, 14 and 18", [("figure", "5"), ("figure", "14"), ("figure", "18")]),
        ("Figure 9a and section 4.2", [("figure", "9"), ("section", "4.2")]),
        ("appendices C to F", [("section", "C"), ("section", "F")]),
        ("Assumption 4.1(4), made sharp", [("assumption", "4.1")]),
    ],
)  # fmt: skip
def test_labels_are_found(text, labels):
    assert cited(text) == labels


@pytest.mark.parametrize("paper", LABELS)
def test_places_are_in_their_papers(paper):
    for entry in registry({paper}).values():
        found = cited(entry.place)
        assert found or entry.place in WORDS, f"{entry.id}: {entry.place!r} has no label"
        for kind, number in found:
            assert known(paper, kind, number), f"{entry.id}: {kind} {number} is not in the paper"


@pytest.mark.parametrize("paper", LABELS)
def test_labels_in_the_texts_of_errata_are_in_their_papers(paper):
    for entry in registry({paper}).values():
        if isinstance(entry, Erratum):
            for text in (entry.reading, entry.corrected):
                for kind, number in cited(text):
                    if kind != "equation":
                        assert known(paper, kind, number), f"{entry.id}: {kind} {number} is not in the paper"


@pytest.mark.parametrize("paper", LABELS)
def test_places_of_the_coverage_are_in_their_papers(paper):
    table = tomllib.loads((ROOT / "docs" / "coverage" / f"{paper}.toml").read_text(encoding="utf-8"))
    for row in table["statement"]:
        found = cited(row["place"])
        assert found or row["place"] in WORDS, f"{row['place']!r} has no label"
        for kind, number in found:
            assert known(paper, kind, number), f"{row['place']!r}: {kind} {number} is not in the paper"
