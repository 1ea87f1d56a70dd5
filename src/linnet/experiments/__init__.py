"""Experiments: figures of the papers, with their acceptance."""

from linnet.experiments.experiment import Experiment, experiments, find

__all__ = ["Experiment", "experiments", "find"]
