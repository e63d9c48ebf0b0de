"""Outlive: a lazy array framework with MLX's API, on a runtime whose buffers outlive exactly the work that uses them.

The array namespace is :mod:`outlive.core`; importing this package alone loads nothing else.
"""

__version__ = "0.1.0"
