"""Lanczos with a basis of five vectors against the one that stores all of them."""

import pytest
import torch

from linnet.probe.lanczos import ends

N = 4000
FIVE = {"vectors": 5, "good": 1}


def diagonal(kind, low):
    """Eigenvalues 1, `low`, and others up to 0.95: a gap of 5 %."""
    noise = 0.01 * torch.randn(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    others = {
        "even": torch.linspace(-0.2, 0.95, N - 2).double(),
        "decaying": torch.cat([0.95 * torch.arange(1, 400).double() ** -0.5, noise[: N - 401]]),
    }[kind]
    return torch.cat([torch.tensor([1.0, low]).double(), others])


def gradient(values, seed):
    """That of the quadratic at weights of random signs."""
    return values * (2 * torch.randint(2, (N,), generator=torch.Generator().manual_seed(seed)) - 1)


@pytest.mark.parametrize("low", [-0.3, -1.5, -3.0])
@pytest.mark.parametrize("kind", ["even", "decaying"])
def test_five_vectors_need_at_most_a_third_more_products(kind, low):
    values = diagonal(kind, low)
    for seed in range(4):
        options = {"matvecs": 100, "tol": 0.02, "least": 6}  # an error of 0.02^2/0.05 = 0.8 % at most
        full = ends(lambda v: values * v, gradient(values, seed), good=1, **options)
        five = ends(lambda v: values * v, gradient(values, seed), **FIVE, **options)
        assert float(five.values[0]) == pytest.approx(1.0, rel=0.01)
        assert 6 <= five.products <= 1.3 * full.products
        assert low <= five.lowest <= 0.5 * low


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vectors", [3, 4, 5, 9])
def test_residuals_of_a_restarted_search_are_bounds(vectors, dtype):
    draw = torch.Generator().manual_seed(vectors)
    matrix = torch.randn(40, 40, generator=draw, dtype=torch.float64)
    matrix = (matrix + matrix.T).to(dtype)
    exact = torch.linalg.eigvalsh(matrix.double())
    found = ends(lambda v: matrix @ v, torch.ones(40, dtype=dtype), good=1, vectors=vectors, matvecs=400, tol=1e-5)
    (value,), (residual,) = found.values, found.residuals
    assert 2 * vectors < found.products < 400  # several restarts
    assert abs(float(value - exact[-1])) <= float(residual) <= 2e-5 * float(exact[-1])
    wrong = (matrix @ found.vector - float(value) * found.vector).norm()
    assert float(wrong) <= 1.1 * float(residual)


def test_a_basis_never_has_more_vectors():
    seen = []

    def product(v):
        seen.append(v.untyped_storage().nbytes() // v.nbytes)  # rows of the basis, of which this is one
        return diagonal("even", -1.5) * v

    ends(product, gradient(diagonal("even", -1.5), 0), **FIVE, matvecs=30, tol=1e-9)
    assert len(seen) == 30
    assert max(seen) == 5
