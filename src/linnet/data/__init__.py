"""Published sets of images: MNIST, Fashion-MNIST, CIFAR-10 and scikit-learn's digits, fetched, checked and read;
and pairs of sentences (STS-B), read.

`load("mnist").subset(5000, seed=0)` has `scaled()`, `standardised()` and `one_hot()`.
"""

from linnet.data.fetch import fetch
from linnet.data.images import Images
from linnet.data.sets import SETS, Published, Status, load, missing, status
from linnet.data.texts import Pairs, no_pairs, pairs

__all__ = ["SETS", "Images", "Pairs", "Published", "Status", "fetch", "load", "missing", "no_pairs", "pairs", "status"]
