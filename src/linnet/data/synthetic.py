"""Synthetic images and classes, which need no file."""

import numpy as np
from jaxtyping import Float64

from linnet import _check

PATTERNS = ("bumps", "texture", "checkerboard")


def synthetic_image(
    kind: str, contrast: float, rng: np.random.Generator, side: int = 32
) -> Float64[np.ndarray, "side side"]:
    """A square gray image of `side` pixels with mean 1/2 and standard deviation `contrast`, drawn with `rng`.

    `kind` is "bumps": three Gaussians of width 0.15 to 0.3 of the image; "texture": noise of 3 to 6 cycles an image;
    "checkerboard": cells of two pixels, the same for every seed.
    """
    _check.choice("kind", kind, PATTERNS)
    if kind == "checkerboard":
        cell = np.arange(side) // 2
        return rescale_contrast((cell[:, None] + cell) % 2, contrast)
    if kind == "texture":
        waves = np.fft.fftfreq(side, 1 / side)
        cycles = np.hypot(waves[:, None], waves)
        noise = np.fft.fft2(rng.normal(size=(side, side)))
        return rescale_contrast(np.fft.ifft2(np.where((cycles >= 3) & (cycles <= 6), noise, 0)).real, contrast)
    place = np.arange(side) / side
    image = np.zeros((side, side))
    for _ in range(3):
        (x, y), width, height = rng.uniform(0.2, 0.8, 2), rng.uniform(0.15, 0.3), rng.uniform(0.5, 1.0)
        image += height * np.exp(-((place - x) ** 2 + (place[:, None] - y) ** 2) / (2 * width**2))
    return rescale_contrast(image, contrast)


def rescale_contrast(image: np.ndarray, contrast: float) -> Float64[np.ndarray, "..."]:
    """The image with mean 1/2 and standard deviation `contrast`."""
    return 0.5 + contrast * (image - image.mean()) / image.std()


def gaussian_classes(
    rng: np.random.Generator, n: int, d: int, classes: int, noise: float
) -> tuple[Float64[np.ndarray, "n d"], Float64[np.ndarray, "n classes"]]:
    """n samples of d inputs in Gaussian classes, drawn with `rng`: their means are standard normal, the standard
    deviation within each is `noise`; and one-hot labels.
    """
    means = rng.normal(size=(classes, d))
    kind = rng.integers(classes, size=n)
    return means[kind] + noise * rng.normal(size=(n, d)), np.eye(classes)[kind]


def scored_classes(
    rng: np.random.Generator, n: int, d: int, classes: int
) -> tuple[Float64[np.ndarray, "n d"], Float64[np.ndarray, "n classes"]]:
    """n samples drawn with `rng`, N(0, 4/j^2) in coordinate j of d, in classes by random linear and quadratic scores;
    and one-hot labels.
    """
    inputs = 2 * rng.normal(size=(n, d)) / np.arange(1, d + 1)
    scores = inputs @ rng.normal(size=(d, classes)) + inputs**2 @ rng.normal(size=(d, classes))
    return inputs, np.eye(classes)[np.argmax(scores, axis=1)]
