"""Transforms of functions: derivatives, batching, compilation, export."""

__all__: list[str] = []
