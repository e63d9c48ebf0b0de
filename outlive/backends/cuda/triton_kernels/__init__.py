"""Kernels in Triton. Importing one of these modules loads Triton: only compilation and the interpreter do that.

`i_` an index, `p_` a pointer, `b_` a block's value. Offsets are 64-bit. Tails are masked by what remains; a masked
element never takes part.
"""
