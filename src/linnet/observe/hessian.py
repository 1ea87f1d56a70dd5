"""Curvature of the training cost in the weights: exact products, dense and Lanczos spectra and densities, blocks."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from linnet import _check
from linnet._check import InputError
from linnet.linalg import blocks_of_values
from linnet.observe.observables import Observable, ObservationContext, context_observable, observable
from linnet.problems import Factorization, Problem
from linnet.states import Modes, State, Weights

DENSE_HESSIAN = 3000  # parameters up to which the Hessian is formed as a matrix
DENSE_SHARPNESS = 150  # below this a dense eigenproblem is cheaper than Lanczos


def _along(function: Callable[[Any], Any], state: State, direction: Any) -> tuple[Any, Any]:
    """A function of the state and its derivative along a direction of what training moves."""
    return jax.jvp(lambda weights: function(eqx.combine(weights, state)), (state.trained(),), (direction.trained(),))


def _flat(state: Any) -> Array:
    """What moves of a state as one vector."""
    return ravel_pytree(state.trained())[0]


_Product = Callable[[State, Problem, Any], Any]


def _weights(state: State) -> None:
    if not state.weighted:
        raise InputError(f"{type(state).__name__} has no weights, so no Hessian: use Weights or Modes.")


def hessian_product(state: State, problem: Problem, direction: Any) -> Any:
    """The Hessian of the cost in the state's coordinates applied to a direction (a state), exactly."""
    _weights(state)
    return jax.tree.map(jnp.negative, _along(lambda s: s.velocity(problem), state, direction)[1])


def gauss_newton_product(state: State, problem: Problem, direction: Any) -> Any:
    """The Gauss-Newton part J^T C'' J of the Hessian, J = dA/dtheta, applied to a direction (a state), exactly.

    The Hessian is this part, whose eigenvalues are not negative where C is convex, and `residual_product`.
    """
    _weights(state)
    matrix, moved = _along(lambda s: s.matrix, state, direction)
    return state.vjp(problem.curvature(matrix, moved))


def residual_product(state: State, problem: Problem, direction: Any) -> Any:
    """The residual part of the Hessian, sum_ij G_ij d^2 A_ij / dtheta^2 with G = dC/dA, applied to a direction."""
    _weights(state)
    gradient = problem.gradient(state.matrix)
    return _along(lambda s: s.vjp(gradient), state, direction)[1]


def _acting(state: State, problem: Problem, product: _Product) -> tuple[Array, Callable[[Array], Array]]:
    """The state as a vector, and a part of its Hessian as a map of such vectors."""
    _weights(state)
    flat, back = ravel_pytree(state.trained())
    if product is hessian_product and state.whole:  # what all products share is computed once
        force = jax.linearize(lambda weights: eqx.combine(back(weights), state).velocity(problem).trained(), flat)[1]
        return flat, lambda v: -ravel_pytree(force(v))[0]
    return flat, lambda v: _flat(product(state, problem, back(v)))


def _matrix(flat: Float[Array, " parameters"], act: Callable[[Array], Array]) -> Float[Array, "parameters parameters"]:
    h = jax.vmap(act)(jnp.eye(flat.size, dtype=flat.dtype))
    return (h + h.T) / 2


def hessian_matrix(state: State, problem: Problem) -> Float[Array, "parameters parameters"]:
    """The dense Hessian, coordinates in the order of `jax.flatten_util.ravel_pytree(state)`.

    What does not move, such as the samples of a `Network`, is none of them.
    """
    flat, act = _acting(state, problem, hessian_product)
    if flat.size > DENSE_HESSIAN:
        raise InputError(f"the state has {flat.size} parameters: the dense Hessian is for at most {DENSE_HESSIAN}.")
    return _matrix(flat, act)


@observable("index")
def hessian_spectrum(state: State, problem: Problem) -> Float[Array, " parameters"]:
    """All eigenvalues of the Hessian, descending (dense)"""
    return jnp.linalg.eigvalsh(hessian_matrix(state, problem))[::-1]


@lru_cache
def top_hessian(count: int = 1, matvecs: int | None = None) -> Observable:
    """The `count` largest distinct Hessian eigenvalues by Lanczos with `matvecs` Hessian products (dense if small).

    By default 20 + 60 `count` products: clustered eigenvalues need more. A Krylov space has each multiple eigenvalue
    once; dense spectra repeat it.
    """
    count = _check.integer("count", count, least=1)
    matvecs = _check.integer("matvecs", _products(count) if matvecs is None else matvecs, least=count)

    def function(state: State, problem: Problem) -> Float[Array, " count"]:
        """Largest Hessian eigenvalues, descending"""
        flat, act = _acting(state, problem, hessian_product)
        if count > flat.size:
            raise InputError(f"count = {count} is not allowed: the state has {flat.size} parameters.")
        return eigenvalues(act, flat, matvecs, apart=count > 1)[:count]

    return Observable.from_function(f"top_hessian_{count}", function, ("index",))


def _products(count: int) -> int:
    """How many products Lanczos may make for so many eigenvalues."""
    return 20 + 60 * count


def eigenvalues(
    product: Callable[[Array], Array],
    like: Float[Array, " parameters"],
    matvecs: int = _products(1),
    *,
    apart: bool = False,
) -> Float[Array, " values"]:
    """Eigenvalues of a symmetric map of vectors `like` this one, descending: all if they are few, else by Lanczos.

    Of Lanczos the first and the last are right, and with `apart` those between as well: without it values that have
    converged may come again, and no other harm is done (Paige 1980), while a step costs its product; to keep all
    vectors orthogonal costs `matvecs` times the state at every step.
    """
    if like.size <= max(DENSE_SHARPNESS, matvecs):
        return jnp.linalg.eigvalsh(_matrix(like, product))[::-1]
    # a fixed generic start: curvature must not depend on a seed
    first = jax.random.normal(jax.random.key(0), like.shape, dtype=like.dtype)
    cut, alive = _lanczos(product, first, matvecs, apart)
    values = jnp.linalg.eigvalsh(cut)[::-1]
    return jnp.maximum(values, values[jnp.sum(alive) - 1])  # the values that are missing repeat the smallest one


def _lanczos(
    product: Callable[[Array], Array], first: Float[Array, " parameters"], matvecs: int, apart: bool
) -> tuple[Float[Array, "m m"], Bool[Array, " m"]]:
    """The Lanczos matrix of so many steps without what follows an exhausted Krylov space, and which rows are left.

    Once a coupling is tiny the space is invariant and all further entries are amplified rounding. Cutting there costs
    the square of the coupling; the rows behind hold a value below every true one and touch no other.
    """
    from matfree import decomp  # the one place that needs it

    reortho = "full" if apart else "none"
    tridiagonal = decomp.tridiag_sym(matvecs, materialize=True, reortho=reortho)(product, first)[1]
    diagonal, coupling = jnp.diagonal(tridiagonal), jnp.abs(jnp.diagonal(tridiagonal, 1))
    scale = jax.lax.cummax(jnp.maximum(jnp.abs(diagonal[:-1]), coupling))
    alive = jnp.concatenate(
        [jnp.ones(1, bool), jnp.cumprod(coupling > float(np.sqrt(np.finfo(coupling.dtype).eps)) * scale).astype(bool)]
    )
    both = alive[:, None] & alive[None, :]
    floor = -3 * jnp.max(jnp.where(both, jnp.abs(tridiagonal), 0.0)) - 1
    return jnp.where(both, tridiagonal, 0.0) + jnp.diag(jnp.where(alive, 0.0, floor)), alive


@observable()
def sharpness(state: State, problem: Problem) -> Float[Array, ""]:
    """Sharpness: the largest eigenvalue of the Hessian"""
    return top_hessian()(state, problem)[0]


_CURVATURE = (
    ("top", (), "Largest eigenvalue of the Hessian"),
    ("error", (), "Bound on the distance of an eigenvalue from `top`: the residual of its vector"),
    ("bottom", (), "Smallest eigenvalue that the same products find, a bound of the true one from above"),
    ("gauss_newton", (), "Share of the Gauss-Newton part in the largest eigenvalue"),
    ("gradient", (), "Share of the squared gradient along the top eigenvector"),
    ("edge", (), "Sharpness over the threshold of the optimizer's steps: unstable above 1"),
    ("products", (), "Hessian products that it took"),
)


@lru_cache
def curvature(tol: float = 2e-3, matvecs: int = 100) -> Observable:
    """The two ends of the Hessian, with an error bound, for networks of many parameters.

    Lanczos with full orthogonalization, which begins at the three highest Ritz vectors of the previous measurement (so
    that an eigenvalue which overtakes the top is found) and ends as soon as the residual |H v - top v| is below `tol`
    times the top, or after `matvecs` products; `error` is that residual, and the Hessian has an eigenvalue within this
    distance. It takes 5 to 15 Hessian products where the previous measurement is not long ago and 15 to 100 at the
    first, each about two gradients, and one forward derivative for the share of the Gauss-Newton part,
    <J v, C'' J v> / top. Its parts are `curvature_top`, `_error`, `_bottom`, `_gauss_newton`, `_gradient`, `_edge`,
    and `_products`.

    `edge` is the sharpness over the threshold of the run's own optimizer: top lr/2 for descent, top lr/(2 + 2 beta) for
    the heavy ball (`theory.optimizers.stability_limit`). Adam's is that of P^{-1/2} H P^{-1/2} with its preconditioner
    P, which takes as many products again. NaN outside a run, without a threshold, and for Adam before its first step.
    """
    tolerance = _check.real("tol", tol, above=0, below=1)
    most = _check.integer("matvecs", matvecs, least=2)

    def initial_past(problem: Problem, initial: State) -> _Begin:
        # a fixed generic vector: curvature must not depend on a seed
        flat = _flat(initial)
        first = jax.random.normal(jax.random.key(0), flat.shape, dtype=flat.dtype)
        return _Begin(first, first)

    def function(context: ObservationContext) -> Any:
        """The two ends of the Hessian, and how far they are from the edge"""
        state, problem, past, optimizer = context.state, context.problem, context.past, context.optimizer
        flat, act = _acting(state, problem, hessian_product)
        found = top_of(act, past.plain, most, tolerance)
        threshold = None if optimizer is None else optimizer.stability_threshold(context.clock)
        divided = None if threshold is None else context.preconditioner()
        scaled = found
        if divided is not None:
            root = _root(state, divided).astype(flat.dtype)
            scaled = top_of(lambda v: root * act(root * v), past.scaled, most, tolerance)
        vector = ravel_pytree(state.trained())[1](found.vector)
        matrix, moved = _along(lambda s: s.matrix, state, eqx.combine(vector, state))
        gradient = _flat(state.velocity(problem))
        square = jnp.sum(gradient**2)
        values = {
            "top": found.top,
            "error": found.error,
            "bottom": found.bottom,
            "gauss_newton": jnp.sum(moved * problem.curvature(matrix, moved)) / found.top,
            "gradient": jnp.sum(gradient * found.vector) ** 2 / jnp.where(square > 0, square, 1.0),
            "edge": scaled.top / jnp.asarray(jnp.nan if threshold is None else threshold, flat.dtype),
            "products": (found.products if divided is None else found.products + scaled.products).astype(flat.dtype),
        }
        return values, _Begin(_usable(found.next, past.plain), _usable(scaled.next, past.scaled))

    return Observable("curvature", function, (), initial_past=initial_past, parts=_CURVATURE)


class _Begin(NamedTuple):
    """Where Lanczos begins, for the Hessian and for the one that an optimizer's preconditioner makes of it."""

    plain: Float[Array, " parameters"]
    scaled: Float[Array, " parameters"]


def _usable(new: Array, old: Array) -> Array:
    """The new vector, unless it is zero or not finite: the next measurement needs one to begin with."""
    size = jnp.linalg.norm(new)
    return jnp.where((size > 0) & jnp.isfinite(size), new, old)


class Top(NamedTuple):
    """The ends of a symmetric map by Lanczos, and the initial vector of the next search."""

    top: Float[Array, ""]
    error: Float[Array, ""]
    bottom: Float[Array, ""]
    vector: Float[Array, " parameters"]
    next: Float[Array, " parameters"]
    products: Int[Array, ""]


_SPACE = 24  # vectors that are kept: more cost their memory and their products with each new one


class _Krylov(NamedTuple):
    """A Krylov space, the map in its basis, and what the last product has outside of it."""

    basis: Float[Array, "m parameters"]
    matrix: Float[Array, "m m"]
    rest: Float[Array, " parameters"]
    size: Int[Array, ""]
    error: Float[Array, ""]  # relative to the top
    products: Int[Array, ""]


def top_of(product: Callable[[Array], Array], first: Float[Array, " parameters"], matvecs: int, tol: float) -> Top:
    """The largest eigenvalue of a symmetric map with its vector, until its residual is below tol times its size.

    Each new vector is made orthogonal to all earlier ones twice. When there are too many of them the search begins
    again at its best guess: 1, 0.1 and 0.01 of the three highest Ritz vectors.
    """
    m = min(_SPACE, matvecs, first.size)
    tiny, rounding = (float(x) for x in (np.finfo(first.dtype).tiny, 10 * np.finfo(first.dtype).eps))

    def ritz(now: _Krylov) -> tuple[Array, Array]:
        used = jnp.arange(m) < now.size
        floor = -3 * jnp.max(jnp.abs(now.matrix)) - 1  # below every value, and apart from all
        return jnp.linalg.eigh(now.matrix + jnp.diag(jnp.where(used, 0.0, floor)))

    def guess(now: _Krylov) -> Float[Array, " parameters"]:
        kept = np.arange(m) >= m - jnp.minimum(now.size, 3)
        weights = jnp.where(kept, 10.0 ** (np.arange(m) - m + 1), 0.0).astype(first.dtype)
        return (ritz(now)[1] @ weights) @ now.basis

    def step(now: _Krylov) -> _Krylov:
        norm, j = jnp.linalg.norm(now.rest), now.size
        vector = now.rest / jnp.maximum(norm, tiny)
        basis, image = now.basis.at[j].set(vector), product(vector)
        coupling, below = jnp.where(j > 0, norm, 0.0), jnp.maximum(j - 1, 0)
        matrix = now.matrix.at[j, j].set(jnp.sum(image * vector)).at[j, below].add(coupling).at[below, j].add(coupling)
        grown = _Krylov(basis, matrix, _apart(image, basis, j + 1), j + 1, now.error, now.products + 1)
        values, vectors = ritz(grown)
        left, top = jnp.linalg.norm(grown.rest), jnp.maximum(jnp.abs(values[-1]), tiny)
        scale = jnp.max(jnp.where(np.arange(m) >= m - 1 - j, jnp.abs(values), 0.0))
        ended = left <= rounding * scale  # nothing is left outside
        return grown._replace(error=jnp.where(ended, 0.0, left * jnp.abs(vectors[j, -1]) / top))

    def begin(vector: Array, products: Any) -> _Krylov:
        basis, matrix = jnp.zeros((m, first.size), first.dtype), jnp.zeros((m, m), first.dtype)
        return _Krylov(basis, matrix, vector, jnp.zeros((), jnp.int32), jnp.full((), jnp.inf, first.dtype), products)

    def search(now: _Krylov) -> _Krylov:
        now = begin(jnp.where(now.size > 0, guess(now), first), now.products)
        return jax.lax.while_loop(lambda k: (k.size < m) & going(k), step, now)

    def going(now: _Krylov) -> Array:
        return (now.products < matvecs) & (now.error > tol)

    end = jax.lax.while_loop(going, search, begin(first, jnp.zeros((), jnp.int32)))
    values, vectors = ritz(end)
    highest = vectors[:, -1] @ end.basis
    return Top(
        top=values[-1],
        error=end.error * jnp.abs(values[-1]),
        bottom=values[m - end.size],
        vector=highest / jnp.linalg.norm(highest),
        next=guess(end),
        products=end.products,
    )


def _apart(vector: Float[Array, " parameters"], basis: Float[Array, "m parameters"], size: Array) -> Array:
    """The vector without what it has in the first rows of a basis, twice for the sake of rounding."""

    def one_by_one() -> Array:
        return jax.lax.fori_loop(
            0, 2 * size, lambda i, left: left - jnp.sum(basis[i % size] * left) * basis[i % size], vector
        )

    def at_once() -> Array:  # rows that are not used are 0
        once = vector - (basis @ vector) @ basis
        return once - (basis @ once) @ basis

    return jax.lax.platform_dependent(cpu=one_by_one, default=at_once)


@observable()
def gauss_newton_sharpness(state: State, problem: Problem) -> Float[Array, ""]:
    """Largest eigenvalue of the Gauss-Newton part J^T C'' J of the Hessian"""
    flat, act = _acting(state, problem, gauss_newton_product)
    return eigenvalues(act, flat)[0]


@observable("index")
def residual_extremes(state: State, problem: Problem) -> Float[Array, "2"]:
    """Largest and smallest eigenvalue of the residual part of the Hessian

    Two layers: plus and minus the spectral norm of dC/dA.
    """
    if isinstance(state, Weights) and state.depth == 2:
        top = jnp.linalg.norm(problem.gradient(state.matrix), ord=2)
        return jnp.stack([top, -top])
    flat, act = _acting(state, problem, residual_product)
    values = eigenvalues(act, flat)
    return jnp.stack([values[0], values[-1]])


def preconditioned_sharpness(preconditioner: Any) -> Observable:
    """The largest eigenvalue of P^{-1/2} H P^{-1/2}: theta - lr P^{-1} dC/dtheta is stable while it is below 2/lr.

    `preconditioner` holds the diagonal of P, positive: a state (or any tree) of arrays in the shapes of the state's,
    or one number for all.
    """
    given = jax.tree.map(lambda leaf: _check.numbers("preconditioner", leaf, above=0), preconditioner)

    def function(state: State, problem: Problem) -> Float[Array, ""]:
        """Largest eigenvalue of P^{-1/2} H P^{-1/2} for a given preconditioner P"""
        return top_preconditioned(state, problem, given)

    return Observable.from_function("preconditioned_sharpness", function, ())


@context_observable()
def adaptive_sharpness(context: ObservationContext) -> Float[Array, ""]:
    """Largest eigenvalue of P^{-1/2} H P^{-1/2}, P the optimizer's own preconditioner at this step

    The Hessian's for optimizers without one. Of Adam it is sqrt(v^) + eps, not known before the first step (NaN):
    stable below 2 (1 + beta1) / ((1 - beta1) lr), 38 / lr with the usual numbers (`theory.optimizers`).
    """
    if context.optimizer is None:
        raise InputError("adaptive_sharpness depends on the optimizer and its memory: observe it in simulate.")
    preconditioner = context.preconditioner()
    return top_preconditioned(
        context.state, context.problem, jnp.ones(()) if preconditioner is None else preconditioner
    )


def top_preconditioned(state: State, problem: Problem, preconditioner: Any) -> Float[Array, ""]:
    """The value of `preconditioned_sharpness`, for a preconditioner that may be traced."""
    flat, act = _acting(state, problem, hessian_product)
    root = _root(state, preconditioner).astype(flat.dtype)
    return eigenvalues(lambda v: root * act(root * v), flat)[0]


def _root(state: State, preconditioner: Any) -> Float[Array, " parameters"]:
    """P^{-1/2}."""
    shapes, wanted = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (preconditioner, _parts(state)))
    if shapes not in ([()], wanted):
        raise InputError(f"preconditioner has arrays of shapes {shapes}: it must be one number or have {wanted}.")
    return jax.lax.rsqrt(ravel_pytree(_parts(preconditioner))[0])


def _parts(state: Any) -> Any:
    """The arrays of a state that move."""
    return state.trained() if isinstance(state, State) else state


def hessian_density(points: Any, width: Any, *, probes: int = 16, matvecs: int = 64, seed: int = 0) -> Observable:
    """The spectral density of the Hessian, (1/N) sum_i N(x; lambda_i, width^2), at the points x; its integral is 1.

    Stochastic Lanczos quadrature: each of `probes` random vectors of signs, drawn with `seed`, gives its own density
    through the nodes and weights of `matvecs` Lanczos steps, and their mean is without bias up to the quadrature's
    error (Ghorbani, Krishnan and Xiao 2019). Exact where the state is small: the dense spectrum.
    """
    x = _check.numbers("points", points, ndim=1)
    size = _check.number("width", width, above=0)
    probes, matvecs = _check.integer("probes", probes, least=1), _check.integer("matvecs", matvecs, least=1)
    key = jax.random.key(_check.integer("seed", seed, least=0))

    def function(state: State, problem: Problem) -> Float[Array, " point"]:
        """Spectral density of the Hessian, smoothed by a Gaussian"""
        flat, act = _acting(state, problem, hessian_product)
        where, wide = x.astype(flat.dtype), size.astype(flat.dtype)
        if flat.size <= max(DENSE_SHARPNESS, matvecs):
            return jnp.mean(_bumps(where, jnp.linalg.eigvalsh(_matrix(flat, act)), wide), axis=1)
        first_vectors = jax.random.rademacher(key, (probes, flat.size), dtype=flat.dtype)
        return jnp.mean(densities(act, first_vectors, where, wide, matvecs), axis=0)

    return Observable.from_function("hessian_density", function, ("point",))


def densities(
    product: Callable[[Array], Array],
    first_vectors: Float[Array, "probes parameters"],
    points: Float[Array, " point"],
    width: Float[Array, ""],
    matvecs: int,
) -> Float[Array, "probes point"]:
    """The spectral density of a symmetric map of each initial vector, sum_k w_k N(x; theta_k, width^2)."""

    def one(vector: Float[Array, " parameters"]) -> Float[Array, " point"]:
        # a node that comes again shares its weight with itself, and what the cut left out has none
        nodes, vectors = jnp.linalg.eigh(_lanczos(product, vector, matvecs, apart=False)[0])
        return _bumps(points, nodes, width) @ vectors[0] ** 2

    return jax.lax.map(one, first_vectors)


def _bumps(points: Float[Array, " point"], centers: Float[Array, " m"], width: Array) -> Float[Array, "point m"]:
    return jax.scipy.stats.norm.pdf(points[:, None], centers, width)


def aligned_blocks(
    state: Modes, problem: Factorization
) -> tuple[Float[Array, "k depth depth"], Float[Array, "pairs 2*depth 2*depth"]]:
    """The Hessian of the k x k matrix network with these aligned layer values, as exact blocks.

    One L x L block for each mode and one 2L x 2L block for each pair i < j, whose unknowns are dW_l[i,j], l = 1..L,
    then dW_l[j,i] (edge of stability, Lemma 1 off the minimum). `problem` is the vector problem of the modes.
    """
    if not isinstance(state, Modes) or not isinstance(problem, Factorization) or len(problem.shape) != 1:
        raise InputError("aligned blocks need Modes and a vector factorization: use problem.aligned().")
    modes, pairs = blocks_of_values(jnp, state.values, problem.goal)
    return problem.scale * modes, problem.scale * pairs


@observable("index")
def aligned_spectrum(state: Modes, problem: Factorization) -> Float[Array, " parameters"]:
    """All Hessian eigenvalues of the aligned matrix network, descending, from its exact blocks"""
    modes, pairs = aligned_blocks(state, problem)
    parts = [jnp.linalg.eigvalsh(modes).ravel(), jnp.linalg.eigvalsh(pairs).ravel()]
    return jnp.sort(jnp.concatenate(parts), descending=True)


@observable()
def aligned_sharpness(state: Modes, problem: Factorization) -> Float[Array, ""]:
    """Sharpness of the aligned matrix network, from its exact blocks"""
    modes, pairs = aligned_blocks(state, problem)
    largest = jnp.max(jnp.linalg.eigvalsh(modes))
    return jnp.maximum(largest, jnp.max(jnp.linalg.eigvalsh(pairs))) if pairs.shape[0] else largest
