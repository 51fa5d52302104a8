"""``make demo``: real conversations through the whole pipeline, then Redis is wiped and every
window comes back byte for byte.
"""
