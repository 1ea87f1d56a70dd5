"""Everything public, in one place. Type checkers read this file; `__init__.py` loads from it on first use."""

from linnet import claims as claims
from linnet import data as data
from linnet import dynamics as dynamics
from linnet import experiments as experiments
from linnet import lab as lab
from linnet import observe as observe
from linnet import predict as predict
from linnet import probe as probe
from linnet import reproduction as reproduction
from linnet import sweep as sweep
from linnet import theory as theory
from linnet._check import InputError as InputError
from linnet._programs import cache_programs as cache_programs
from linnet._version import __version__ as __version__
from linnet.curves import Catapults as Catapults
from linnet.curves import catapults as catapults
from linnet.curves import rises as rises
from linnet.initial import (
    aligned as aligned,
)
from linnet.initial import (
    balanced as balanced,
)
from linnet.initial import (
    critical as critical,
)
from linnet.initial import (
    gauge as gauge,
)
from linnet.initial import (
    gaussian as gaussian,
)
from linnet.initial import (
    i_gamma as i_gamma,
)
from linnet.initial import (
    identity as identity,
)
from linnet.initial import (
    lambda_balanced as lambda_balanced,
)
from linnet.initial import (
    mixed_manifold as mixed_manifold,
)
from linnet.initial import (
    one_zero as one_zero,
)
from linnet.initial import (
    orthogonal as orthogonal,
)
from linnet.initial import (
    propagator as propagator,
)
from linnet.initial import (
    random_one_zero as random_one_zero,
)
from linnet.initial import (
    readout as readout,
)
from linnet.initial import (
    two_c_balanced as two_c_balanced,
)
from linnet.motion import (
    Adam as Adam,
)
from linnet.motion import (
    AdamW as AdamW,
)
from linnet.motion import (
    GradientDescent as GradientDescent,
)
from linnet.motion import (
    GradientFlow as GradientFlow,
)
from linnet.motion import (
    InertialFlow as InertialFlow,
)
from linnet.motion import (
    LabelNoiseDescent as LabelNoiseDescent,
)
from linnet.motion import (
    MiniBatch as MiniBatch,
)
from linnet.motion import (
    Momentum as Momentum,
)
from linnet.motion import (
    Motion as Motion,
)
from linnet.motion import (
    Muon as Muon,
)
from linnet.motion import (
    NoisyFlow as NoisyFlow,
)
from linnet.motion import (
    Online as Online,
)
from linnet.motion import (
    Optax as Optax,
)
from linnet.motion import (
    Optimiser as Optimiser,
)
from linnet.motion import (
    Sign as Sign,
)
from linnet.motion import (
    Stepping as Stepping,
)
from linnet.motion import (
    Task as Task,
)
from linnet.motion import (
    change_below as change_below,
)
from linnet.motion import (
    loss_below as loss_below,
)
from linnet.networks import conv as conv
from linnet.networks import mlp as mlp
from linnet.networks import reduced as reduced
from linnet.networks import unet as unet
from linnet.outcome import Kept as Kept
from linnet.outcome import Outcome as Outcome
from linnet.outcome import Status as Status
from linnet.problems import (
    Classification as Classification,
)
from linnet.problems import (
    Factorisation as Factorisation,
)
from linnet.problems import (
    Fit as Fit,
)
from linnet.problems import (
    Optimum as Optimum,
)
from linnet.problems import (
    Problem as Problem,
)
from linnet.problems import (
    Projection as Projection,
)
from linnet.problems import (
    Regression as Regression,
)
from linnet.problems import (
    Sampler as Sampler,
)
from linnet.problems import (
    Samples as Samples,
)
from linnet.problems import (
    Softmax as Softmax,
)
from linnet.problems import (
    Whitening as Whitening,
)
from linnet.problems import (
    classification as classification,
)
from linnet.problems import (
    custom as custom,
)
from linnet.problems import (
    diagonal_regression as diagonal_regression,
)
from linnet.problems import (
    factorisation as factorisation,
)
from linnet.problems import (
    gaussian_samples as gaussian_samples,
)
from linnet.problems import (
    logistic as logistic,
)
from linnet.problems import (
    low_rank_recovery as low_rank_recovery,
)
from linnet.problems import (
    masked as masked,
)
from linnet.problems import (
    mean_field_regression as mean_field_regression,
)
from linnet.problems import (
    pseudo_huber as pseudo_huber,
)
from linnet.problems import (
    regression as regression,
)
from linnet.problems import (
    supervised as supervised,
)
from linnet.record import Record as Record
from linnet.record import at as at
from linnet.record import every as every
from linnet.record import linear as linear
from linnet.record import logarithmic as logarithmic
from linnet.record import pairs as pairs
from linnet.simulation import cast as cast
from linnet.simulation import simulate as simulate
from linnet.states import (
    Balanced as Balanced,
)
from linnet.states import (
    Closure as Closure,
)
from linnet.states import (
    EndToEnd as EndToEnd,
)
from linnet.states import (
    Lazy as Lazy,
)
from linnet.states import (
    Mixed as Mixed,
)
from linnet.states import (
    Modes as Modes,
)
from linnet.states import (
    Network as Network,
)
from linnet.states import (
    Pair as Pair,
)
from linnet.states import (
    RankOne as RankOne,
)
from linnet.states import (
    ReluNetwork as ReluNetwork,
)
from linnet.states import (
    ScalarMirror as ScalarMirror,
)
from linnet.states import (
    SpectralMirror as SpectralMirror,
)
from linnet.states import (
    State as State,
)
from linnet.states import (
    Weights as Weights,
)
from linnet.trajectory import Moment as Moment
from linnet.trajectory import Trajectory as Trajectory
from linnet.trajectory import load as load
