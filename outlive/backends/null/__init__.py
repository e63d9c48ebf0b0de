"""The device that does nothing: the smallest example of a backend, and the measure of the host's own cost an op."""
