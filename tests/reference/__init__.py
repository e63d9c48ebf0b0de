"""The reference implementation beside ours: a child process, generated inputs, and the tolerances of a comparison."""

from tests.reference.client import Reference, ReferenceUnavailableError
from tests.reference.wire import Array, Call, Crashed, Outcome, Program, Raised, Returned

__all__ = [
    "Array",
    "Call",
    "Crashed",
    "Outcome",
    "Program",
    "Raised",
    "Reference",
    "ReferenceUnavailableError",
    "Returned",
]
