"""The platform of a real machine."""
