"""Which facts about a kernel's arguments Triton compiles into it.

Triton's launcher does not compile a kernel for types alone: an integer that equals 1 becomes a
constant, an integer or address divisible by 16 is marked so (which allows vector loads). This
module does the same from values, without a GPU, and reads signatures that state the facts.

Source: ``create_function_from_signature`` and ``native_specialize_impl`` (3.6 to 3.9) or
``create_specialize_impl`` (3.5) in ``triton/runtime/jit.py``; ``BaseBackend.parse_attr`` and its
``get_*_specialization`` in ``triton/backends/compiler.py``, to which the CUDA backend adds nothing
on any architecture. The tests compare with those functions. Nothing here imports triton.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kanalyze.errors import UsageError, nearest
from kanalyze.text.pieces import pieces

if TYPE_CHECKING:
    from kanalyze.launch.assumptions import Assumption

DIVISIBLE_BY_16 = "divisible by 16"
EQUAL_TO_1 = "equal to 1"

# Names and their aliases: triton/_utils.py, type_canonicalisation_dict.
_ALIASES = {
    "bool": "u1", "int1": "u1", "i1": "u1", "uint1": "u1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "int": "i32", "float": "fp32", "half": "fp16", "double": "fp64",
    "float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bf16",
    "f16": "fp16", "f32": "fp32", "f64": "fp64",
    "float8_e5m2": "fp8e5", "float8e5": "fp8e5", "float8e4nv": "fp8e4nv",
    "float8_e4m3fn": "fp8e4nv", "float8e4b15": "fp8e4b15", "float8e4b8": "fp8e4b8",
    "float8_e4m3fnuz": "fp8e4b8", "float8e5b16": "fp8e5b16", "float8_e5m2fnuz": "fp8e5b16",
}  # fmt: skip
SCALAR_TYPES = (
    "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64",
    "fp16", "bf16", "fp32", "fp64", "fp8e5", "fp8e4nv", "fp8e4b15", "fp8e4b8", "fp8e5b16",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TritonParameter:
    """A kernel's parameter as ``@triton.jit`` sees it (``triton.runtime.jit.KernelParam``).

    ``type`` is the annotated type ("" where there is none); ``default`` counts only with
    ``has_default``.
    """

    name: str
    constexpr: bool = False
    specialise: bool = True
    specialise_alignment: bool = True
    const: bool = False
    type: str = ""
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Specialization:
    """What Triton is told about one argument.

    Attributes:
        type: ``*fp32``, ``i32``, …, or ``constexpr``: then the argument is not a parameter in PTX.
        facts: :data:`DIVISIBLE_BY_16` or :data:`EQUAL_TO_1`, or nothing.
        value: the constant, for ``constexpr``.
    """

    type: str
    facts: tuple[str, ...] = ()
    value: Any = None


ALLOCATED = 256
"""Bytes that allocators align to, or more: ``torch.empty`` and ``cudaMalloc`` do (CUDA C++ Best
Practices Guide, 13.1, section 10.2.1.3), so a pointer is divisible by 16 unless a caller says
otherwise."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A device pointer to elements of a type (``fp32``), aligned to ``align`` bytes and no more.

    ``shape`` and ``strides`` are in elements, None where not known, or where they are contiguous
    and row-major; ``contents`` is what the array holds.
    """

    dtype: str
    align: int = ALLOCATED
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    contents: Assumption | None = None

    @property
    def steps(self) -> tuple[int, ...]:
        """Elements from one index to the next, for each axis."""
        shape = self.shape or ()
        return self.strides or tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def specialise(parameter: TritonParameter, value: object) -> Specialization:
    """Return what Triton's launcher would compile in for this parameter and value.

    Args:
        parameter: the parameter, with its annotations.
        value: an int, float, bool, None, :class:`Pointer`, or anything for a constexpr.

    Raises:
        UsageError: Triton takes no such value at launch.
    """
    if parameter.constexpr:
        return Specialization("constexpr", (), value)
    plain = _specialise_value(parameter, value)
    if not parameter.type:
        return plain
    # An annotated type wins over the value's; a value of 1 then stays an ordinary argument.
    if parameter.type == "u1" or parameter.type[:2] in ("fp", "bf"):
        return Specialization(parameter.type)
    divisible = plain.facts == (DIVISIBLE_BY_16,)
    return Specialization(parameter.type, plain.facts if divisible else ())


def _specialise_value(parameter: TritonParameter, value: object) -> Specialization:
    match value:
        case None:
            return Specialization("constexpr", (), None)
        case bool():
            return Specialization("u1")
        case int() if value == 1 and parameter.specialise:
            return Specialization("constexpr", (EQUAL_TO_1,), 1)
        case int():
            return Specialization(_integer_type(parameter, value), _divisible(parameter, value))
        case float():
            return Specialization("fp32")
        case Pointer():
            kind = "*k" if parameter.const else "*"
            return Specialization(kind + value.dtype, _divisible(parameter, value.align))
    raise UsageError(
        f"parameter '{parameter.name}': {value!r} cannot be passed to a kernel, "
        "expected an integer, a float or a bool (or annotate the parameter with tl.constexpr)"
    )


def _integer_type(parameter: TritonParameter, value: int) -> str:
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if value < 2**64 and value > 0:
        return "u64"
    raise UsageError(f"parameter '{parameter.name}': {value} does not fit into 64 bits")


def _divisible(parameter: TritonParameter, value: int) -> tuple[str, ...]:
    wanted = parameter.specialise and parameter.specialise_alignment
    return (DIVISIBLE_BY_16,) if wanted and value % 16 == 0 else ()


# --- values and signatures as text ---------------------------------------------------------------


def parse_value(text: object) -> object:
    """Return the value that a text stands for: ``128``, ``1e-5``, ``true``, ``None``, ``'relu'``.

    A text that is none of these stands for itself; a value that is not text is returned as it is.
    """
    if not isinstance(text, str):
        return text
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    try:
        return int(text.replace("_", ""), 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        pass
    if re.fullmatch(r"\s*(['\"]).*\1\s*|\s*\(.*\)\s*|\s*\[.*\]\s*", text):
        try:
            return ast.literal_eval(text.strip())
        except (ValueError, SyntaxError):
            pass
    return text.strip()


def normalise_type(text: str) -> str:
    """Return Triton's own spelling of a type: ``*float32`` → ``*fp32``, ``tl.int64`` → ``i64``.

    Raises:
        UsageError: no such type, or one that a signature cannot state.
    """
    cleaned = text.strip().replace("tl.", "")
    if re.match(r"tensordesc|nvTmaDesc|\(", cleaned):
        raise UsageError(
            f"type '{text.strip()}' is not supported in a signature: tensor descriptors and tuples "
            "are made at launch from tensors that do not exist here"
        )
    match = re.fullmatch(r"(\**)(const\s+|k(?=[a-z]))?\s*(\w+)(\**)", cleaned)
    if match is not None:
        stars, const, name, more = match.groups()
        name = _ALIASES.get(name, name)
        stars += more
        if len(stars) > 1:
            raise UsageError(f"type '{text.strip()}': a pointer to pointers cannot be passed")
        if name in SCALAR_TYPES:
            return stars + ("k" if const and stars else "") + name
        cleaned = name
    raise UsageError(
        f"unknown type '{text.strip()}' in a signature: {nearest(cleaned, SCALAR_TYPES)} "
        "(a pointer is written *fp32)"
    )


def parse_signature(text: str, parameters: Sequence[TritonParameter]) -> dict[str, Specialization]:
    """Read a signature in the format of Triton's ahead-of-time compiler.

    ``"*fp32:16, *fp32, i32:16, i32:1, 1024"``, by position: a type, then ``:16`` (divisible by 16)
    or ``:1`` (equal to 1) or nothing (no fact); a bare number, bool or quoted text is a constant's
    value. Items ``name=…`` go by name. Where fewer items stand than the kernel has parameters, they
    fill the parameters that are not annotated constexpr, if none of them is a bare value.
    Parameters that are not named are absent from the result.

    Source: ``triton/tools/compile.py``.

    Raises:
        UsageError: an item cannot be read, there are too many, or a name is unknown.
    """
    given: dict[str, str] = {}
    positional: list[str] = []
    names = [parameter.name for parameter in parameters]
    for item in _split(text):
        named = re.fullmatch(r"(?s)([A-Za-z_]\w*)\s*=\s*(.+)", item)
        if named is None:
            if given:
                raise UsageError(f"signature: '{item}' stands after an item with a name")
            positional.append(item)
        elif named[1] not in names:
            raise UsageError(
                f"signature: unknown parameter '{named[1]}': {nearest(named[1], names)}"
            )
        else:
            given[named[1]] = named[2].strip()
    plain = [parameter.name for parameter in parameters if not parameter.constexpr]
    short = len(positional) < len(names) and len(positional) <= len(plain)
    targets = plain if short and not any(map(_is_value, positional)) else names
    if len(positional) > len(targets):
        raise UsageError(
            f"signature has {len(positional)} items, the kernel has {len(names)} parameters: "
            f"{', '.join(names)}"
        )
    by_position = dict(zip(targets, positional, strict=False))
    if twice := sorted(by_position.keys() & given.keys()):
        raise UsageError(f"signature: '{twice[0]}' is given by position and by name")
    chosen = by_position | given
    return {
        parameter.name: argument
        for parameter in parameters
        if parameter.name in chosen
        and (argument := _parse_item(parameter, chosen[parameter.name])) is not None
    }


def _parse_item(parameter: TritonParameter, item: str) -> Specialization | None:
    if _is_value(item):
        return Specialization("constexpr", (), parse_value(item))
    if item == "constexpr":
        return None  # its value comes from elsewhere
    if parameter.constexpr and not re.match(r"\*|tensordesc", item):
        if item.split(":")[0].strip() in SCALAR_TYPES:
            raise UsageError(
                f"signature: '{parameter.name}' is a constexpr and takes a value, found '{item}'"
            )
        return Specialization("constexpr", (), parse_value(item))
    kind, colon, hint = item.partition(":")
    kind, hint = normalise_type(kind), hint.strip()
    if not colon:
        return Specialization(kind)
    if hint == "16" and kind[:2] not in ("fp", "bf"):
        return Specialization(kind, (DIVISIBLE_BY_16,))
    if hint == "1" and kind[0] in "iu":
        return Specialization("constexpr", (EQUAL_TO_1,), 1)
    raise UsageError(
        f"signature: '{item}' of '{parameter.name}': expected ':16' (divisible by 16; pointers and "
        "integers) or ':1' (equal to 1; integers) after the type"
    )


def _is_value(item: str) -> bool:
    return not isinstance(parse_value(item), str) or item[:1] in "'\""


def _split(text: str) -> list[str]:
    """Split at the commas that stand outside quotes and brackets."""
    items = [item.strip() for item in pieces(text, quotes="'\"")]
    if items[-1] == "":
        items.pop()  # nothing at all, or a comma at the end
    if "" in items:
        raise UsageError(f"signature: item {items.index('') + 1} is empty in '{text}'")
    return items


def with_value(
    parameter: TritonParameter, stated: Specialization | None, value: object
) -> Specialization:
    """Return the argument for a set value; what a signature states of it stays, if it can be true.

    Raises:
        UsageError: the signature contradicts the value.
    """
    name = parameter.name
    if stated is None:
        return specialise(parameter, value)
    if stated.type.startswith("*"):
        raise UsageError(f"'{name}' is a pointer ({stated.type}) and takes no value")
    if stated.type != "constexpr" and not isinstance(value, int | float):
        raise UsageError(f"'{name}' is set to {value!r}: expected a number ({stated.type})")
    if stated.type == "constexpr" and stated.value != value:
        raise UsageError(f"'{name}' is set to {value!r}, and the signature says {stated.value!r}")
    if DIVISIBLE_BY_16 in stated.facts and (not isinstance(value, int) or value % 16):
        raise UsageError(f"'{name}' is set to {value!r}, and the signature says divisible by 16")
    return stated


def signature_text(arguments: Mapping[str, Specialization]) -> str:
    """Return the signature, by names, that states these arguments."""
    items = []
    for name, argument in arguments.items():
        if argument.type != "constexpr":
            text = f"{argument.type}{':16' if DIVISIBLE_BY_16 in argument.facts else ''}"
        else:
            text = "i32:1" if EQUAL_TO_1 in argument.facts else repr(argument.value)
        items.append(f"{name}={text}")
    return ", ".join(items)
