"""Benchmarks: one module a figure, ours beside what a user would pick instead, in one run (see
``benchmarks.harness``).
"""
