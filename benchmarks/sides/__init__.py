"""One side of a figure each, run as ``python -m benchmarks.sides.<name>`` in a process of its own
(see ``benchmarks.support.children``).
"""
