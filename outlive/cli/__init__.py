"""The command line: ``outlive generate | run | bench | doctor``."""
