"""Errors about things that a user brings: files, packages, options.

Their text is one sentence that names what is wrong, where, and what to do. The command line prints it and exits with
status 1; a program catches the class.
"""


class UserError(Exception):
    """Something from outside cannot be used as it is; the text says what, where, and what to do."""


class FileFormatError(UserError):
    """A file is truncated, corrupt, hostile, or of a format or version that is not read."""
