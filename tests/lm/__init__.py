"""Tests of model files, text and language models."""
