"""The tangent kernel Theta = J J^T: on the entries of A, its spectrum and drift; on samples, and what it aligns with.

On the entries of A, data and output scales are the problem's and do not enter. On samples both do: `sample_kernel` is
the kernel of the predictions output_scale X A^T, sample by sample in the order they were given. What is one number of
that kernel is found in the coordinates that a `Regression` keeps of its samples, X = Q root with root in place of X.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from linnet import _check
from linnet._check import InputError, known
from linnet.linalg import below_and_above
from linnet.observe.observables import Observable, ObservationContext, context_observable, observable
from linnet.problems import Problem, Regression
from linnet.states import Network, ReluNetwork, State, Weights

DENSE_KERNEL = 4096  # entries of A up to which Theta is formed as a matrix


def kernel_matrix(state: State) -> Float[Array, "entries entries"]:
    """Theta as a matrix on the entries of A (row by row)."""
    shape = state.matrix.shape
    entries = state.matrix.size
    if entries > DENSE_KERNEL:
        raise InputError(f"A has {entries} entries: the dense tangent kernel is for at most {DENSE_KERNEL}.")
    basis = jnp.eye(entries, dtype=state.matrix.dtype).reshape(entries, *shape)
    return jax.vmap(state.tangent)(basis).reshape(entries, entries).T


def _factors(state: Weights) -> list[tuple[Array, Array]]:
    """Theta(G) = sum_l L_l G R_l, L_l = (W_L..W_{l+1})(..)^T and R_l = (W_{l-1}..W_1)^T(..)."""
    d_in, d_out = (jnp.eye(state.widths[i], dtype=state.layers[i].dtype) for i in (0, -1))
    below, above = below_and_above(state.layers, d_in, d_out)
    return [(q @ q.T, p.T @ p) for p, q in zip(below, above, strict=True)]


@observable("index")
def kernel_spectrum(state: State, problem: Problem) -> Float[Array, " entries"]:
    """Eigenvalues of the tangent kernel, descending

    Two layers: all sums lambda_i(C2) + lambda_j(C1); otherwise from the dense kernel.
    """
    if isinstance(state, Weights) and state.depth == 2:
        w1, w2 = state.layers
        first = jnp.linalg.eigvalsh(w1.T @ w1)
        second = jnp.linalg.eigvalsh(w2 @ w2.T)
        return jnp.sort((second[:, None] + first[None, :]).ravel(), descending=True)
    return jnp.linalg.eigvalsh(kernel_matrix(state))[::-1]


def _initial_state(problem: Problem, initial: State) -> State:
    return initial


@context_observable(preparation=_initial_state)
def kernel_drift(context: ObservationContext) -> Float[Array, ""]:
    """Relative change |Theta - Theta_0|_F / |Theta_0|_F of the tangent kernel since the start of the run"""
    state, initial = context.state, context.prepared
    if not (isinstance(state, Weights) and isinstance(initial, Weights)):
        kernel = kernel_matrix(initial)
        return jnp.linalg.norm(kernel_matrix(state) - kernel) / jnp.linalg.norm(kernel)
    # Theta - Theta_0 as a sum of products with one small factor each, so that small drifts keep their digits
    now, then = _factors(state), _factors(initial)
    change = []
    for (left, right), (left0, right0) in zip(now, then, strict=True):
        change += [(left - left0, right), (left0, right - right0)]
    return jnp.sqrt(jnp.maximum(_square(change), 0.0) / _square(then))


def _square(terms: list[tuple[Array, Array]]) -> Float[Array, ""]:
    """|sum_l L_l x R_l|_F^2 from traces of small matrices."""
    lefts = jnp.stack([left for left, _ in terms]).reshape(len(terms), -1)
    rights = jnp.stack([right for _, right in terms]).reshape(len(terms), -1)
    return jnp.sum((lefts @ lefts.T) * (rights @ rights.T))


# On samples ----------------------------------------------------------------------------------------------------------


@observable("sample", "other")
def sample_kernel(state: State, problem: Problem) -> Float[Array, "n n"]:
    """Tangent kernel of the predictions on the samples, in their order, normalization included

    Two layers and one output in width w: (1/w^2) (|v|^2 K + X W_1^T W_1 X^T) with K = X X^T (feature learning, section
    3.4). Several outputs: samples of the first one, then of the next. A `Network` predicts samples itself, without an
    output scale: J J^T. Of a `ReluNetwork` it is (D D^T) o K + H H^T with H = relu(X W_1^T) and D = v where a neuron
    is active.
    """
    if isinstance(state, ReluNetwork):
        return _relu_kernel(state)
    if isinstance(state, Network):
        return kernel_matrix(state)
    problem = _regression(problem)
    return _kernel_on(problem.sampled().inputs, state, problem)


def _kernel_on(inputs: Float[Array, "n d_in"], state: State, problem: Regression) -> Float[Array, "entries entries"]:
    """The kernel on any inputs: the samples, or the root, which has the same norms and angles in fewer rows."""
    if isinstance(state, Weights):
        kernel = sum(jnp.kron(left, inputs @ right @ inputs.T) for left, right in _factors(state))
    else:
        spread = jnp.kron(jnp.eye(state.matrix.shape[0]), inputs)
        kernel = spread @ kernel_matrix(state) @ spread.T
    return problem.output_scale**2 * kernel


def _relu_kernel(state: ReluNetwork) -> Float[Array, "entries entries"]:
    first, second = state.layers
    hidden = state.inputs @ first.T
    gram, passed = state.inputs @ state.inputs.T, jax.nn.relu(hidden)
    through = jnp.where(hidden > 0, second[:, None, :], 0.0)  # outputs, samples, neurons
    blocks = jnp.einsum("air,bjr->aibj", through, through) * gram[None, :, None, :]
    same = jnp.eye(second.shape[0])[:, None, :, None]
    entries = second.shape[0] * gram.shape[0]
    return (blocks + same * (passed @ passed.T)[None, :, None, :]).reshape(entries, entries)


def target_kernel(gram: Any, labels: Any, scale: Any = 1.0) -> Float[Array, "n n"]:
    """T(c) = c (K + K y y^T K / gamma), gamma = y^T K y: where the tangent kernel of feature learning goes.

    `gram` is K = X X^T (n x n), `scale` is c.
    """
    xp, (k, y, c) = known(*_gram(gram, labels), scale)
    pulled = k @ y
    return _check.floating(c * (k + xp.outer(pulled, pulled) / (y @ pulled)))


def refined_kernel(
    gram: Any, labels: Any, *, squares: Any, projections: Any, variance: Any, width: Any
) -> Float[Array, "n n"]:
    """The aligned kernel with its random start, to leading order in width^{-1/2} (feature learning, Lemma 5.2 refined).

    (1/w) [mean(v^2) K + mean(omega^2) K y y^T K / gamma^2 + variance (K - K y y^T K / gamma)]: `squares` = mean(v^2),
    `projections` = mean(omega^2) with omega = W_1 X^T y, `variance` = sigma0^2.

    `gram` is K = X X^T (n x n), `labels` is y (n).
    """
    given = *_gram(gram, labels), squares, projections, variance, width
    xp, (k, y, squares, projections, variance, width) = known(*given)
    pulled = k @ y
    gamma = y @ pulled
    aligned = xp.outer(pulled, pulled) / gamma
    return _check.floating((squares * k + projections / gamma * aligned + variance * (k - aligned)) / width)


def kernel_distance(kernel: Any, other: Any) -> Float[Array, ""]:
    """|kernel - other| / |kernel| in the spectral norm, symmetric kernels: relative to the first, the true one."""
    xp, (true, guess) = known(*_kernels(kernel, other))
    return _check.floating(_spectral_norm(xp, true - guess) / _spectral_norm(xp, true))


def kernel_cosine(kernel: Any, other: Any) -> Float[Array, ""]:
    """The cosine of two kernels as vectors, tr(A^T B) / (|A|_F |B|_F).

    A is `kernel` and B is `other`, both n x n.
    """
    xp, kernels = known(*_kernels(kernel, other))
    a, b = (k / xp.max(xp.abs(k)) for k in kernels)  # squares of a tiny kernel would underflow
    return _check.floating(xp.sum(a * b) / (xp.linalg.norm(a) * xp.linalg.norm(b)))


@observable()
def target_distance(state: State, problem: Problem) -> Float[Array, ""]:
    """Relative spectral distance of the tangent kernel on samples from the target-aligned one of scale mean(v^2)/w"""
    state, _ = _scaled(state)
    square = jnp.sum(_one_output(state)[1] ** 2)
    if isinstance(state, Network):
        rows, labels = _rows(state), problem.output_labels()[:, 0]
        return kernel_distance(sample_kernel(state, problem), target_kernel(rows @ rows.T, labels, square))
    problem = _regression(problem)
    root, scale = problem.root, problem.output_scale
    target = target_kernel(root @ root.T, problem.labels[0], scale**2 * square)
    return kernel_distance(_kernel_on(root, state, problem), target)


def refined_distance(sigma0: Any) -> Observable:
    """Relative spectral distance from the refined aligned kernel of a start W_1 ~ N(0, sigma0^2), width 1/output_scale

    An observable; the refined kernel needs the mean-field scaling of `mean_field_regression`.
    """
    size = _check.number("sigma0", sigma0, least=0)

    def distance(state: State, problem: Problem) -> Float[Array, ""]:
        if isinstance(state, Network):
            raise InputError(
                "refined_distance needs the output scale of a regression, a Network has none: use Weights."
            )
        problem, (state, unit) = _regression(problem), _scaled(state)
        first, v = _one_output(state)
        root, scale = problem.root, problem.output_scale
        refined = refined_kernel(
            root @ root.T,
            problem.labels[0],
            squares=scale * jnp.sum(v**2),
            projections=scale * jnp.sum((first @ problem.cross[0]) ** 2),
            variance=(size / unit) ** 2,
            width=1 / scale,
        )
        return kernel_distance(_kernel_on(root, state, problem), refined)

    return Observable.from_function("refined_distance", distance, ())


@observable()
def label_kernel(state: State, problem: Problem) -> Float[Array, ""]:
    """Tangent kernel on samples in the direction of the labels, y^T Theta y"""
    if isinstance(state, Network):  # |J^T y|^2
        squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(state.vjp(problem.output_labels().T).trained())]
        return jnp.sum(jnp.stack(squares))
    (first, v), feature = _one_output(state), _feature(state, problem)
    scale = _regression(problem).output_scale
    return scale**2 * (jnp.sum(v**2) * jnp.sum(feature**2) + jnp.sum((first @ feature) ** 2))


@context_observable(preparation=_initial_state)
def slope(context: ObservationContext) -> Float[Array, ""]:
    """Alignment slope sum(rho v) / (sqrt(gamma) sum(v^2)), rho_r = <w_r - w_r(0), X^T y> (1 once features are aligned)

    The least-squares ratio of rho_r to v_r over all neurons, the same in full and in compressed width; in
    stage one it is `theory.feature.slope`.
    """
    (first, v), (before, _) = _one_output(context.state), _one_output(context.prepared)
    feature = _feature(context.state, context.problem)
    # units of v, so that the squares of a tiny start do not underflow
    unit = jnp.max(jnp.abs(v))
    v, rho = v / unit, (first - before) @ (feature / jnp.linalg.norm(feature)) / unit
    return jnp.sum(rho * v) / jnp.sum(v**2)


def _regression(problem: Problem) -> Regression:
    if not isinstance(problem, Regression) or len(problem.shape) != 2:
        raise InputError(f"problem = {type(problem).__name__} is not allowed: a kernel on samples needs a regression.")
    return problem


def _one_output(state: State) -> tuple[Float[Array, "w d_in"], Float[Array, " w"]]:
    """W_1 and v."""
    first, second = _two_layers(state).layers
    return first, second[0]


def _two_layers(state: State) -> Weights | Network:
    if not isinstance(state, Weights | Network) or len(state.layers) != 2 or state.layers[1].shape[0] != 1:
        raise InputError(f"state = {type(state).__name__} is not allowed: use two layers with one output.")
    return state


def _scaled(state: State) -> tuple[State, Float[Array, ""]]:
    """Weights in units of the largest, and that unit, so that the squares of a tiny start do not underflow."""
    first, v = _one_output(state)
    largest = jnp.maximum(jnp.max(jnp.abs(first)), jnp.max(jnp.abs(v)))
    unit = jnp.where(largest > 0, largest, 1.0)
    scaled = (first / unit, v[None] / unit)
    return _two_layers(state).with_layers(scaled), unit


def _feature(state: State, problem: Problem) -> Float[Array, " d_in"]:
    """X^T y."""
    if isinstance(state, Network):
        return problem.output_labels()[:, 0] @ _rows(state)
    return _regression(problem).cross[0]


def _rows(state: Network) -> Float[Array, "n d_in"]:
    """The samples that the first layer acts on."""
    if state.inputs.ndim != 2 or state.inputs.shape[1] != state.layers[0].shape[1]:
        shapes = f"{state.layers[0].shape} and samples of shape {state.inputs.shape[1:]}"
        raise InputError(f"the network has a first layer of shape {shapes}: it must act on them.")
    return state.inputs


def _gram(gram: Any, labels: Any) -> tuple[Array, Array]:
    k = _check.array("gram", gram, ndim=2)
    return k, _check.array("labels", labels, ndim=1, shape=(k.shape[0],))


def _kernels(kernel: Any, other: Any) -> tuple[Array, Array]:
    a = _check.array("kernel", kernel, ndim=2)
    return a, _check.array("other", other, ndim=2, shape=a.shape)


def _spectral_norm(xp: Any, kernel: Any) -> Any:
    return xp.max(xp.abs(xp.linalg.eigvalsh(kernel)))
