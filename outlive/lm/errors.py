"""Errors about models, prompts and where models come from."""

from outlive.io.errors import UserError


class ModelError(UserError):
    """A model's file is well-formed but cannot be run: its architecture, a tensor, its text settings."""


class PromptError(UserError):
    """A prompt or an option of generation cannot be used with this model."""


class SourceError(UserError):
    """A model cannot be fetched or kept: no such source, no network, no space, a damaged download."""
