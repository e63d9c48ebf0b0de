"""Tests of the command line, each command run as a user runs it."""
