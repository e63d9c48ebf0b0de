"""Devices, each with its accelerated kernels; loaded on use."""
