"""Adapters: frameworks and SDKs on one side, a threadfold client on the other. Each module is
imported only when it is used.
"""
