"""Triton kernels that are not Inductor's: ``_matmul_ogs_NNT_…``, ``softmax_kernel_0d1d2de3de4``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields, Reject
from kanalyze.profiles.names.grammar import Token

_MARKS = ("", "c", "d", "e", "de")


def transform(r: NameFields) -> None:
    """Note what each argument was specialised to; refuse what only looks like Triton's."""
    if suffix := r.one("SUFFIX"):
        arguments = split_suffix(suffix.text)
        if arguments is None or (len(arguments) == 1 and not _of_triton(r.one("FUNCTION"))):
            raise Reject
        r.add("specialization", arguments, suffix)
    elif r.cut and not r.has("OGS"):
        suffix = r.partial
        if suffix is None or suffix.name != "SUFFIX" or not _begins_suffix(suffix.text):
            raise Reject
    if not (r.has("OGS") or r.has("FUNCTION") or r.has("BARE")):
        raise Reject


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
