"""Pairs of sentences with a score: the benchmark of semantic textual similarity (STS-B), as it was published."""

import dataclasses
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from linnet import _check
from linnet._check import InputError
from linnet.data import files
from linnet.data.sets import places

NAME, PARTS = "stsb", ("train", "dev")
_SCORE, _FIRST, _SECOND = 4, 5, 6  # columns


@dataclasses.dataclass(frozen=True, eq=False)
class SentencePairs:
    """Pairs of sentences, and how alike each is: 0 to 5."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: Float64[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.first)


def pairs(part: str = "train", *, folder: str | Path | None = None) -> SentencePairs:
    """The pairs of STS-B to train on, or those of its development set.

    The published files, tab-separated and without quoting, are searched where sets of images are, in a folder stsb;
    or in `folder`.

    `part` is "train" or "dev".
    """
    file = f"sts-{_check.choice('part', part, PARTS)}.csv"
    searched = places(NAME) if folder is None else [Path(folder)]
    path = next((place / file for place in searched if (place / file).is_file()), None)
    if path is None:
        where = " and ".join(repr(str(place)) for place in searched) or "no folder"
        raise InputError(
            f"{file} of STS-B is not on this machine, searched in {where}: LINNET_DATA=FOLDER names a folder with "
            f"{NAME}/{file} in it, as published in Stsbenchmark.tar.gz."
        )
    try:
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
        scores = np.array([float(row[_SCORE]) for row in rows])
        first, second = (tuple(row[i].strip() for row in rows) for i in (_FIRST, _SECOND))
    except OSError as error:
        raise files.damaged(path, error.strerror or "it cannot be opened") from None
    except (ValueError, IndexError):
        raise files.damaged(path, "a line has no score and two sentences in columns 5 to 7") from None
    if not len(scores) or not (np.all(scores >= 0) and np.all(scores <= 5)):
        raise files.damaged(path, "it has no scores from 0 to 5")
    return SentencePairs(first, second, scores)


def no_pairs() -> str | None:
    """What this machine lacks for `pairs`, as a sentence with the cure; None if the files are there."""
    try:
        for part in PARTS:
            pairs(part)
    except InputError as error:
        return str(error)
    return None
