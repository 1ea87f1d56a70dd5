"""Published sets of images: MNIST, Fashion-MNIST, CIFAR-10 and scikit-learn's digits, fetched, checked and read;
pairs of sentences (STS-B), read; tables from users' files; and synthetic images and classes.

`load("mnist").subset(5000, seed=0)` has `scaled()`, `standardized()` and `one_hot()`.
"""

from linnet.data.download import fetch
from linnet.data.images import Images
from linnet.data.sets import SETS, Published, SetStatus, load, missing, status
from linnet.data.synthetic import gaussian_classes, rescale_contrast, scored_classes, synthetic_image
from linnet.data.tables import LARGEST, SUFFIXES, Table, pair_of, read_array, read_pair, read_table, table_of
from linnet.data.texts import SentencePairs, no_pairs, pairs

__all__ = [
    "LARGEST",
    "SETS",
    "SUFFIXES",
    "Images",
    "Published",
    "SentencePairs",
    "SetStatus",
    "Table",
    "fetch",
    "gaussian_classes",
    "load",
    "missing",
    "no_pairs",
    "pair_of",
    "pairs",
    "read_array",
    "read_pair",
    "read_table",
    "rescale_contrast",
    "scored_classes",
    "status",
    "synthetic_image",
    "table_of",
]
