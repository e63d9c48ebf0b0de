"""Tests of the project itself: its map, its size, its words, its commands."""
