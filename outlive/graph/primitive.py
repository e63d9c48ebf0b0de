"""`Primitive`: an immutable op object with its rules. An op is one place: its module in `ops/` holds the public function and this class.

What an op defines
    name        MLX's name of the function; the key of routes and of messages
    encode      what runs, through a command encoder; the default makes one dense output (donated where possible) and dispatches the op
    reference   the kernel in NumPy's (and CuPy's) common subset, writing into outputs that it is given
    workspace   upper bound in bytes of what the reference kernel allocates beside its outputs
    vjp         cotangents of the inputs from cotangents of the outputs
    jvp         tangents of the outputs from tangents of the inputs
    vmap        the op over a batch axis of its inputs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlive.graph.array import array
    from outlive.runtime.buffer import Operand
    from outlive.runtime.encoder import CommandEncoder
    from outlive.runtime.layout import Layout

LIMIT_INTERNED = 1 << 14


class Primitive:
    """Base of all ops. Parameters are the class's `__slots__`, set in order by `make`; equal parameters give the same object.

    So primitives compare and hash by identity, and kernels chosen for one are found again.
    """

    __slots__ = ()
    name = ""
    moves_bits = False
    """The reference kernel only moves elements: it sees storage, and half-precision types are not converted."""
    donates = True
    """The default `encode` may write the output over an input of the same layout."""

    single_use = False
    """Each op object runs once: devices remember no kernel for it."""

    pairs = False
    """Elementwise over two operands with one output: the evaluation may take the encoder's short way, `pair`."""

    _interned: dict[Any, Any] = {}  # noqa: RUF012  (one table for all classes, on purpose)

    @classmethod
    def make(cls, *parameters: Any) -> Self:
        """The op with these parameters. Hashable ones are interned."""
        # 1 == 1.0 == True: equal keys of other types must not share an object
        key: tuple[Any, ...] = (cls, parameters, tuple(map(type, parameters)))
        if 0.0 in parameters and any(type(p) is float and p == 0 for p in parameters):
            key = (cls, tuple(map(repr, parameters)))  # 0.0 == -0.0
        table = Primitive._interned
        try:
            found: Any = table.get(key)
        except TypeError:
            return cls._new(parameters)
        if found is None:
            if len(table) >= LIMIT_INTERNED:
                table.clear()
            found = table[key] = cls._new(parameters)
        return found  # type: ignore[no-any-return]

    @classmethod
    def _new(cls, parameters: tuple[Any, ...]) -> Self:
        made = object.__new__(cls)
        slots: tuple[str, ...] = cls.__slots__
        for slot, value in zip(slots, parameters, strict=True):
            object.__setattr__(made, slot, value)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"[{self.name}] Ops are immutable; make another one.")

    def parameters(self) -> tuple[Any, ...]:
        """The parameters in the order of `make`."""
        slots: tuple[str, ...] = type(self).__slots__
        return tuple(getattr(self, slot) for slot in slots)

    def __repr__(self) -> str:
        return f"{self.name}{self.parameters() or ''}"

    def encode(self, encoder: CommandEncoder, inputs: tuple[Operand, ...], layout: Layout) -> Operand:
        """Record the op over `inputs`; returns the operand of its result (multi-output ops: a tuple, `layout` is a tuple)."""
        out = encoder.output(layout, self.donates)
        encoder.dispatch(self, inputs, (out,))
        return out

    def reference(self, xp: Any, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        """Compute `writes` from `reads` with the array library `xp`. Half-precision operands come as float32."""
        raise NotImplementedError(f"[{self.name}] This op has no reference kernel.")

    def workspace(self, reads: tuple[Layout, ...], writes: tuple[Layout, ...]) -> int:
        """Upper bound in bytes of what `reference` allocates; by default float32 copies of every operand, twice."""
        return 2 * sum(max(4, layout.dtype.itemsize) * layout.size for layout in (*reads, *writes))

    def vjp(
        self,
        primals: tuple[array, ...],
        cotangents: tuple[array, ...],
        argnums: tuple[int, ...],
        outputs: tuple[array, ...],
    ) -> Sequence[array | None]:
        """Cotangents of the inputs `argnums`, in that order; None stands for zero."""
        raise ValueError(f"[{self.name}] This op has no derivative (vjp).")

    def jvp(self, primals: tuple[array, ...], tangents: tuple[array, ...], argnums: tuple[int, ...]) -> Sequence[array]:
        """Tangents of the outputs, from tangents of the inputs `argnums`."""
        raise ValueError(f"[{self.name}] This op has no forward derivative (jvp).")

    def vmap(
        self, inputs: tuple[array, ...], axes: tuple[int | None, ...]
    ) -> tuple[Sequence[array], Sequence[int | None]]:
        """The op over inputs whose batch axis is `axes[i]` (None: not batched); the outputs and their batch axes."""
        raise ValueError(f"[{self.name}] This op has no batching rule (vmap).")


class Pick(Primitive):
    """One output of a node that makes several. Encoding it takes the output's data; nothing runs."""

    __slots__ = ("index",)
    name = "pick"
    index: int


class Migrate(Primitive):
    """Brings an array to the device of the op that reads it: a copy in a new buffer there. It sees its input as an operand."""

    __slots__ = ()
    name = "migrate"
    between_devices = True
    donates = False

    def reference(self, xp: Any, reads: tuple[Any, ...], writes: tuple[Any, ...]) -> None:
        writes[0][...] = reads[0].buffer.device.copy_out(reads[0])
