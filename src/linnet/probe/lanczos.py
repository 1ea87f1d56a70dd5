"""The ends of a Hessian by Lanczos, in PyTorch, each value with its residual."""

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
    next: torch.Tensor  # the initial vector of the next search
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
) -> Ends:
    """The `count` largest eigenvalues of a symmetric map, until the residuals of the first `good` are below tol times
    the largest; the others have larger residuals. A multiple eigenvalue is found once.

    Krylov vectors are kept orthogonal to all before them. `product` returns a new vector.
    """
    most = min(matvecs, first.numel())
    basis = first.new_empty((min(most, 16), first.numel()))
    diagonal: list[float] = []
    coupling: list[float] = []
    rest, size = first, float(norm(first))
    if not size > 0:
        rest, size = torch.ones_like(first), first.numel() ** 0.5
    while True:
        step = len(diagonal)
        if step == len(basis):
            basis = torch.cat([basis, basis.new_empty((min(most - step, step), first.numel()))])
        torch.div(rest, size, out=basis[step])
        rest = product(basis[step])
        diagonal.append(float(inner(rest, basis[step])))
        rest.sub_(basis[step], alpha=diagonal[-1])  # in place: allocation would take longer than the arithmetic
        if coupling:
            rest.sub_(basis[step - 1], alpha=coupling[-1])
        found = basis[: step + 1]
        rest.addmv_(found.T, inner(found, rest).to(rest), alpha=-1)  # components left by rounding
        size = float(norm(rest))
        values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, coupling))
        largest = float(values.abs().max())
        rounding = _ROUNDING * torch.finfo(first.dtype).eps * largest
        residuals = size * vectors[-1].abs() + rounding
        settled = step + 1 >= good and bool(
            (residuals[-good:] <= max(tol * abs(float(values[-1])), 2 * rounding)).all()
        )
        if settled or size <= rounding or step + 1 == most:
            break
        coupling.append(size)
    vectors = vectors.to(first)
    top = vectors[:, -1] @ found
    weights = vectors[:, -3:] @ vectors.new_tensor([0.01, 0.1, 1.0])[-vectors.shape[1] :]
    return Ends(
        values=values.flip(0)[:count],
        residuals=residuals.flip(0)[:count],
        lowest=float(values[0]),
        vector=top / norm(top).to(top),
        next=weights @ found,
        products=len(diagonal),
    )


def _tridiagonal(diagonal: list[float], coupling: list[float]) -> torch.Tensor:
    beside = torch.tensor(coupling, dtype=torch.float64)
    return torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + torch.diag(beside, 1) + torch.diag(beside, -1)
