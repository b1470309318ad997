"""Runs of pytest inside the tests need ``pytester``."""

pytest_plugins = ["pytester"]
