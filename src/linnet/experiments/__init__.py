"""Experiments: figures of the papers, with their acceptance."""

from linnet.experiments.experiment import SIZES, Experiment, Progress, experiments, find

__all__ = ["SIZES", "Experiment", "Progress", "experiments", "find"]
