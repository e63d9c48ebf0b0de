"""Fourier transforms: `mx.fft`."""

from outlive.ops.fft import *  # noqa: F403
from outlive.ops.fft import __all__ as __all__
