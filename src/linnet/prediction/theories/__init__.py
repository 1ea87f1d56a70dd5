"""Theories of a triple (problem, network, optimizer), one module for each topic."""
