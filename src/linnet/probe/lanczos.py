"""The ends of a Hessian by Lanczos, in PyTorch, each value with its residual."""

from collections.abc import Callable
from typing import NamedTuple

import torch


class Ends(NamedTuple):
    """The largest eigenvalues, descending, with residuals |H v - value v|: an eigenvalue is so near. Then the lowest."""

    values: torch.Tensor
    residuals: torch.Tensor
    lowest: float
    vector: torch.Tensor  # of the first
    next: torch.Tensor  # where to begin next time
    products: int


def ends(
    product: Callable[[torch.Tensor], torch.Tensor], first: torch.Tensor, *, count: int, matvecs: int, tol: float
) -> Ends:
    """The `count` largest eigenvalues of a symmetric map, until the residual of the first is below tol times its size.

    Krylov vectors are kept orthogonal, twice for the sake of rounding. The others' residuals tell how far they are.
    """
    size = first.numel()
    most = min(matvecs, size)
    basis = first.new_zeros((0, size))
    diagonal: list[float] = []
    coupling: list[float] = []
    rest, norm = first, float(torch.linalg.vector_norm(first))
    if not norm > 0:
        rest, norm = torch.ones_like(first), size**0.5
    values = vectors = residuals = torch.zeros(0)
    for step in range(most):
        vector = rest / norm
        basis = torch.cat([basis, vector[None]])
        image = product(vector)
        diagonal.append(float(image @ vector))
        rest = image
        for _ in range(2):
            rest = rest - (basis @ rest) @ basis
        norm = float(torch.linalg.vector_norm(rest))
        small = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
        if coupling:
            beside = torch.tensor(coupling, dtype=torch.float64)
            small = small + torch.diag(beside, 1) + torch.diag(beside, -1)
        values, vectors = torch.linalg.eigh(small)
        residuals = norm * vectors[-1].abs()
        largest = float(values.abs().max())
        ended = norm <= 10 * torch.finfo(first.dtype).eps * largest
        if ended or (float(residuals[-1]) <= tol * abs(float(values[-1])) and step + 1 >= min(count, most)):
            break
        coupling.append(norm)
    kept = min(count, len(values))
    vectors = vectors.to(first)
    top = vectors[:, -1] @ basis
    mixed = sum(0.1**i * vectors[:, -1 - i] for i in range(min(3, len(values))))
    return Ends(
        values=values.flip(0)[:kept],
        residuals=residuals.flip(0)[:kept],
        lowest=float(values[0]),
        vector=top / torch.linalg.vector_norm(top),
        next=mixed @ basis,
        products=len(diagonal),
    )
