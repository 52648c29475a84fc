"""Triton kernels that are not Inductor's: ``_matmul_ogs_NNT_…``, ``softmax_kernel_0d1d2de3de4``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields, Reject
from kanalyze.profiles.names.grammar import Token

_MARKS = ("", "c", "d", "e", "de")
_TYPES = {"fp16": "f16", "fp32": "f32", "fp8e4nv": "e4m3", "fp8e5": "e5m2"}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``triton_other.lark`` state."""
    if suffix := r.one("SUFFIX"):
        arguments = split_suffix(suffix.text)
        if arguments is None or (len(arguments) == 1 and not _of_triton(r.one("FUNCTION"))):
            raise Reject
        r.add("specialization", arguments, suffix, "generator")
    elif r.cut and not r.has("OGS"):
        suffix = r.partial
        if suffix is None or suffix.name != "SUFFIX" or not _begins_suffix(suffix.text):
            raise Reject
    function = r.one("OGS") or r.one("FUNCTION") or r.one("BARE")
    if function is None:
        raise Reject
    r.add("function", function.text, function, "generator")
    r.add("generator", "triton", function, "generator")
    if r.has("OGS"):
        r.named("generator")
        r.add("op", "gemm", function, "generator")
        for name, key in (("Y_TYPE", "dtype_d"), ("X_TYPE", "dtype_a"), ("W_TYPE", "dtype_b")):
            if token := r.one(name):
                r.add(key, _TYPES.get(token.text, token.text), token, "generator")
        r.epilogue(basis="generator")


def _of_triton(function: Token | None) -> bool:
    """Whether a name with one argument in its suffix is Triton's: ``copy_0d`` may be anything."""
    return function is not None and ("kernel" in function.text or "triton" in function.text)


def _begins_suffix(text: str) -> bool:
    """Whether a cut suffix has at least two whole arguments, one of them specialised."""
    known = text.rstrip("cdei").rstrip("0123456789")
    arguments = split_suffix(known)
    return arguments is not None and len(arguments) >= 2


def split_suffix(suffix: str) -> tuple[str, ...] | None:
    """Return what each argument was specialised to; None when the indices do not count up.

    ``0d1de2`` is argument 0 divisible by 16, argument 1 by 16 and by 8, argument 2 nothing.
    """
    marks: list[str] = []
    at = 0
    while at < len(suffix):
        index = str(len(marks))
        if not suffix.startswith(index, at):
            return None
        at += len(index)
        begin = at
        while at < len(suffix) and not suffix[at].isdigit():
            at += 1
        mark = suffix[begin:at]
        if mark not in _MARKS:
            return None
        marks.append(mark)
    return tuple(marks) if any(marks) else None
