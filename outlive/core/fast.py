"""Fused ops: `mx.fast`."""

from outlive.ops.attention import scaled_dot_product_attention
from outlive.ops.cross_entropy import cross_entropy
from outlive.ops.gated_delta import gated_delta_update
from outlive.ops.normalize import layer_norm, rms_norm
from outlive.ops.rope import rope

__all__ = [
    "cross_entropy",
    "gated_delta_update",
    "layer_norm",
    "rms_norm",
    "rope",
    "scaled_dot_product_attention",
]
