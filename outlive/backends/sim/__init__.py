"""A simulated machine: threads that switch where a seed says, poisoned memory, and a device that runs work in an adversary's order."""
