"""Images in memory: rows of pixels with their classes, and what is made of them for a network."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Integer, Num

from linnet import _check
from linnet._check import InputError

CLASSES = 10  # of every set here


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Images as rows of pixels, and the class of each, 0 to 9.

    `shape` is that of one image: rows and columns, with the colors before them if there are any. `brightest` is the
    largest value that a pixel can have.
    """

    pixels: Num[np.ndarray, "n d"]
    classes: Integer[np.ndarray, " n"]
    shape: tuple[int, ...]
    brightest: int = 255

    def __post_init__(self) -> None:
        pixels, classes = np.shape(self.pixels), np.shape(self.classes)
        if len(pixels) != 2 or 0 in pixels or classes != pixels[:1] or math.prod(self.shape) != pixels[1]:
            raise InputError(
                f"images of shape {pixels} with classes of shape {classes} are not allowed: give a row for each image, "
                f"of {math.prod(self.shape)} pixels ({' x '.join(map(str, self.shape))}), and a class for each row."
            )

    def __len__(self) -> int:
        return len(self.classes)

    def subset(self, n: int, *, seed: int = 0) -> "Images":
        """The first n of a permutation by the seed: more images of one seed begin with the fewer."""
        if _check.integer("n", n, least=1) > len(self):
            raise InputError(f"n = {n} is not allowed: there are {len(self)} images.")
        return self._of(np.random.default_rng(_check.integer("seed", seed, least=0)).permutation(len(self))[:n])

    def scaled(self) -> Float64[np.ndarray, "n d"]:
        """The pixels from 0 to 1."""
        return self.pixels / np.float64(self.brightest)

    def standardized(self, over: "Images | None" = None) -> Float64[np.ndarray, "n d"]:
        """Each pixel less its mean, over its standard deviation, both over these images or over others (those of the
        training, where these are to test); 0 where it is the same in all of them.
        """
        those = self if over is None else over
        if those.shape != self.shape:
            raise InputError(f"over has images of shape {those.shape}: they must be of shape {self.shape}, as these.")
        mean, deviation = (f(those.pixels, axis=0, dtype=np.float64) for f in (np.mean, np.std))
        return (self.pixels - mean) * np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1.0), 0.0)

    def one_hot(self) -> Float64[np.ndarray, "n classes"]:
        """A row for each image: 1 at its class, 0 elsewhere; ten columns, whichever classes are there."""
        return np.eye(CLASSES)[self.classes]

    def pair(
        self, classes: Sequence[int], n: int, rng: np.random.Generator
    ) -> tuple[Float64[np.ndarray, "n d"], Float64[np.ndarray, " n"]]:
        """n images of two classes, half of each, less their mean; labels +1 and -1 (feature learning, section 6)."""
        if len(classes) != 2 or classes[0] == classes[1]:
            raise InputError(f"classes = {tuple(classes)} is not allowed: give two different classes.")
        half = _check.integer("n", n, least=2) // 2
        if n != 2 * half:
            raise InputError(f"n = {n} is not allowed: n must be even, half of the images from each class.")
        there = [np.flatnonzero(self.classes == name) for name in classes]
        for name, found in zip(classes, there, strict=True):
            if not len(found):
                known = ", ".join(str(c) for c in np.unique(self.classes))
                raise InputError(f"class {name} is not known: the images have {known}.")
            if len(found) < half:
                raise InputError(
                    f"n = {n} is not allowed: it takes {half} images of class {name}, and there are {len(found)}."
                )
        chosen = [rng.permutation(found)[:half] for found in there]
        x = self.pixels[np.concatenate(chosen)].astype(np.float64)
        return x - x.mean(axis=0), np.repeat([1.0, -1.0], half)

    def _of(self, chosen: np.ndarray) -> "Images":
        return dataclasses.replace(self, pixels=self.pixels[chosen], classes=self.classes[chosen])
