"""The chaos suite: seeded faults under load over real processes, and an oracle that owes nothing to
the fold (``make chaos``).
"""
