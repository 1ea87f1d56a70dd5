"""Published sets of images: MNIST, Fashion-MNIST, CIFAR-10 and scikit-learn's digits, fetched, checked and read.

`load("mnist").subset(5000, seed=0)` has `scaled()`, `standardised()` and `one_hot()`.
"""

from linnet.data.fetch import fetch
from linnet.data.images import CLASSES, Images
from linnet.data.sets import SETS, Published, Status, load, missing, status

__all__ = ["CLASSES", "SETS", "Images", "Published", "Status", "fetch", "load", "missing", "status"]
