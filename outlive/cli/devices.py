"""The ``--device`` option."""

from __future__ import annotations

from typing import Annotated

import typer

from outlive.io.errors import UserError

DeviceOption = Annotated[str | None, typer.Option("--device", metavar="cpu|gpu", help="Where arrays are computed.")]


def choose_device(name: str | None) -> None:
    """Make ``name`` the default device of this process; None keeps the library's own choice.

    Raises:
        UserError: if there is no such device.
    """
    if name is None:
        return
    if name not in ("cpu", "gpu"):
        raise UserError(f"--device is {name!r}, but must be cpu or gpu")
    import outlive.core as mx

    try:
        mx.set_default_device(getattr(mx, name))
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(f"--device {name} cannot be used: {reason}; choose another, or see 'outlive doctor'") from error
