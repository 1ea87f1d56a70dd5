"""The ends of a Hessian by Lanczos, in PyTorch, each value with its residual."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

_ROUNDING = 10  # units of rounding that a product is allowed, of the largest value
_PIECE = 2**12  # numbers that a CPU sums in their own precision: of millions the sum would lose a thousandth


class Ends(NamedTuple):
    """The largest eigenvalues, descending, with residuals |H v - value v| that bound their errors; the lowest."""

    values: torch.Tensor
    residuals: torch.Tensor
    lowest: float
    vector: torch.Tensor  # of the first
    products: int


def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a . b, or each row of a with b, piece by piece; the pieces are summed in double precision."""
    if a.device.type != "cpu":
        return (a @ b).double()  # in a tree, which loses nothing
    pieces = zip(torch.split(a, _PIECE, dim=-1), torch.split(b, _PIECE), strict=True)
    return torch.stack([x @ y for x, y in pieces]).double().sum(0)


def norm(a: torch.Tensor) -> torch.Tensor:
    """The length of a vector."""
    return inner(a, a).sqrt()


def ends(
    product: Callable[[torch.Tensor], torch.Tensor],
    first: torch.Tensor,
    *,
    good: int,
    matvecs: int,
    tol: float,
    count: int = 1,
    least: int = 0,
    vectors: int | None = None,
) -> Ends:
    """The `count` largest eigenvalues of a symmetric map, until the residuals of the first `good` are below tol times
    the largest, after `least` products or more; the others have larger residuals. A multiple eigenvalue is found once.

    Krylov vectors are kept orthogonal to all before them. With `vectors` (at least good + 2) no more than so many are
    stored: a full basis is replaced by the Ritz vectors of its largest values, half as many or `good`, that of a lowest
    value with a larger modulus, and the residual (thick restart: Wu and Simon, 2000). H Q = Q T + r e' holds on, with T
    diagonal but for one row and column. So many eigenvalues at most are returned. `product` returns a new vector.
    """
    rows = min(matvecs if vectors is None else vectors, first.numel())
    most = rows if vectors is None or rows < vectors else matvecs
    keep = 0 if vectors is None else max(vectors // 2, good)
    basis = first.new_empty((min(rows, 16), first.numel()))
    projected = torch.zeros((rows, rows), dtype=torch.float64)  # T
    rest, size, step, products, lowest = first, float(norm(first)), 0, 0, math.inf
    if not size > 0:
        rest, size = torch.ones_like(first), first.numel() ** 0.5
    while True:
        if step == len(basis):
            basis = torch.cat([basis, basis.new_empty((min(rows - step, step), first.numel()))])
        torch.div(rest, size, out=basis[step])
        rest = product(basis[step])
        products += 1
        projected[step, step] = inner(rest, basis[step])
        for other in range(step + 1):  # in place: allocation would take longer than the arithmetic
            if projected[other, step]:
                rest.sub_(basis[other], alpha=float(projected[other, step]))
        step += 1
        found = basis[:step]
        rest.addmv_(found.T, inner(found, rest).to(rest), alpha=-1)  # components left by rounding
        size = float(norm(rest))
        values, ritz = torch.linalg.eigh(projected[:step, :step])
        lowest = min(lowest, float(values[0]))
        largest = float(values.abs().max())
        rounding = _ROUNDING * torch.finfo(first.dtype).eps * largest
        residuals = size * ritz[-1].abs() + rounding
        settled = (
            step >= good
            and products >= least
            and bool((residuals[-good:] <= max(tol * abs(float(values[-1])), 2 * rounding)).all())
        )
        if settled or size <= rounding or products == most:
            break
        if step == rows:
            kept = [0] * (-values[0] > values[-1]) + list(range(step - keep, step))
            step = len(kept)
            basis[:step] = ritz[:, kept].T.to(first) @ found
            projected.zero_()
            projected[:step, :step] = torch.diag(values[kept])
            projected[:step, step] = projected[step, :step] = size * ritz[-1, kept]
        else:
            projected[step - 1, step] = projected[step, step - 1] = size
    ritz = ritz.to(first)
    top = ritz[:, -1] @ found
    return Ends(
        values=values.flip(0)[:count],
        residuals=residuals.flip(0)[:count],
        lowest=lowest,
        vector=top / norm(top).to(top),
        products=products,
    )
