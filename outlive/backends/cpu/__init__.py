"""The CPU: a device, its executor of word lists, and its compiled kernels."""
