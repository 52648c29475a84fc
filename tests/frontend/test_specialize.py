"""Facts that are compiled in, against the code of Triton's launcher, which needs no driver."""

import itertools

import pytest

from kanalyze.errors import UsageError
from kanalyze.frontend.specialize import (
    DIVISIBLE_BY_16,
    EQUAL_TO_1,
    Pointer,
    Specialization,
    TritonParameter,
    normalise_type,
    parse_signature,
    parse_value,
    specialise,
)

VALUES = (
    True, False, 0, 1, 2, 15, 16, 48, -1, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32,
    2**63 - 1, 2**63, 2**63 + 16, 2**64 - 1, 0.0, 1.0, 16.0, float("inf"), None,
)  # fmt: skip
ADDRESSES = (0, 256, 16, 8, 1)


class FakeTensor:
    def __init__(self, address, dtype):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


class FakeDtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


# As torch's own, each lives as long as the process: Triton remembers them by identity.
DTYPES = {
    FakeDtype("float16"): "fp16",
    FakeDtype("bfloat16"): "bf16",
    FakeDtype("float32"): "fp32",
    FakeDtype("int64"): "i64",
    FakeDtype("bool"): "u1",
}


def oracle(parameter: TritonParameter, value: object, annotation: object = None) -> Specialization:
    """Ask ``create_function_from_signature``, as ``JITFunction.run`` does."""
    import inspect

    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import KernelParam, create_function_from_signature

    backend = make_backend(GPUTarget("cuda", 100, 32))
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    empty = inspect.Parameter.empty
    inner = inspect.Parameter("x", kind, annotation=annotation or empty)
    ours = KernelParam(0, inner, not parameter.specialise, not parameter.specialise_alignment)
    binder = create_function_from_signature(inspect.Signature([inner]), [ours], backend)
    _, (answer,), _ = binder(value)
    kind_text, fact = answer
    facts: tuple[str, ...] = ()
    if isinstance(fact, str) and ["tt.divisibility", 16] in backend.parse_attr(fact):
        facts = (DIVISIBLE_BY_16,)
    if kind_text == "constexpr":
        equal = fact == 1 and not isinstance(fact, bool) and annotation is None
        return Specialization("constexpr", (EQUAL_TO_1,) if equal else (), fact)
    return Specialization(kind_text, facts)


@pytest.fixture(autouse=True)
def _needs_triton():
    pytest.importorskip("triton")


@pytest.mark.parametrize(
    ("whole", "alignment"), list(itertools.product((True, False), (True, False)))
)
def test_values_like_the_launcher(whole, alignment):
    parameter = TritonParameter("x", specialise=whole, specialise_alignment=alignment)
    for value in VALUES:
        assert specialise(parameter, value) == oracle(parameter, value), value
    for address in ADDRESSES:
        for dtype, ours in DTYPES.items():
            tensor = FakeTensor(address, dtype)
            assert specialise(parameter, Pointer(ours, address)) == oracle(parameter, tensor)


@pytest.mark.parametrize("annotation", ["tl.int64", "i32", "tl.float32", "fp16", "u1", "u64"])
def test_annotated_types_like_the_launcher(annotation):
    kind = normalise_type(annotation)
    for whole in (True, False):
        parameter = TritonParameter("x", specialise=whole, type=kind)
        for value in (0, 1, 7, 16, 2**40, 0.5):
            expected = oracle(parameter, value, annotation)
            assert specialise(parameter, value) == expected, value


def test_constexpr_and_const_pointers():
    import triton.language as tl

    parameter = TritonParameter("x", constexpr=True)
    for value in (1, 16, "relu", (1, 2), None):
        ours = specialise(parameter, value)
        assert ours == Specialization("constexpr", (), value)
        assert oracle(parameter, value, tl.constexpr).type == "constexpr"
    const = TritonParameter("x", const=True)
    tensor = FakeTensor(32, next(d for d, name in DTYPES.items() if name == "fp32"))
    assert specialise(const, Pointer("fp32")) == oracle(const, tensor, tl.const)
    assert specialise(const, Pointer("fp32")).type == "*kfp32"


def test_values_that_cannot_be_passed():
    for value in ("text", [1], 2**64, -(2**63) - 1):
        with pytest.raises(UsageError):
            specialise(TritonParameter("x"), value)


def test_types_like_triton():
    from triton._utils import type_canonicalisation_dict

    for name, canonical in type_canonicalisation_dict.items():
        if canonical not in ("nvTmaDesc", "B", "void"):
            assert normalise_type(f"*{name}") == f"*{canonical}", name
    assert normalise_type("*const fp32") == "*kfp32"
    assert normalise_type("*kfp16") == "*kfp16"
    assert normalise_type("tl.int64") == "i64"
    for text in ("fp33", "", "*", "**fp32", "fp32 fp32", "tensordesc<fp16[8]>", "(i32, i32)"):
        with pytest.raises(UsageError):
            normalise_type(text)


def test_texts_of_values():
    texts = ("128", "0x10", "-1", "1e-5", "true", "False", "none", "'a b'", "relu", "(1, 2)", "1_0")
    expected = (128, 16, -1, 1e-5, True, False, None, "a b", "relu", (1, 2), 10)
    assert tuple(map(parse_value, texts)) == expected
    assert parse_value(3.5) == 3.5


PARAMETERS = tuple(TritonParameter(name, constexpr=name == "B") for name in "xBny")


def test_signatures():
    full = {
        "x": Specialization("*fp32", (DIVISIBLE_BY_16,)),
        "B": Specialization("constexpr", (), 64),
        "n": Specialization("i32", (DIVISIBLE_BY_16,)),
        "y": Specialization("*fp16"),
    }
    assert parse_signature("*fp32:16, 64, i32:16, *fp16", PARAMETERS) == full
    assert parse_signature("*fp32:16,i32:16,*fp16,B=64", PARAMETERS) == full
    assert parse_signature("y=*fp16, n=i32:16, B=64, x = *fp32:16 ,", PARAMETERS) == full
    assert parse_signature("*fp32:16, 64", PARAMETERS) == {k: full[k] for k in ("x", "B")}
    assert parse_signature("n=i32:1", PARAMETERS)["n"] == Specialization(
        "constexpr", (EQUAL_TO_1,), 1
    )
    assert parse_signature("B='a,b'", PARAMETERS)["B"].value == "a,b"
    assert parse_signature("B=(1, 2)", PARAMETERS)["B"].value == (1, 2)
    assert parse_signature("*fp32, constexpr, i32, i32", PARAMETERS).keys() == {"x", "n", "y"}
    assert parse_signature("", PARAMETERS) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("*fp32,,i32", "item 2 is empty"),
        ("z=i32", "unknown parameter 'z'"),
        ("x=i32, i32", "after an item with a name"),
        ("i32, x=i32", "by position and by name"),
        ("i32, i32, i32, i32, i32", "5 items, the kernel has 4 parameters"),
        ("*fp32:8", "expected ':16'"),
        ("fp32:16", "expected ':16'"),
        ("*fp32:1", "expected ':16'"),
        ("i32:", "expected ':16'"),
        ("B=i32", "'B' is a constexpr and takes a value"),
        ("n=fp31", "unknown type 'fp31'"),
        ("x=tensordesc<fp16[64, 64]>", "tensor descriptors"),
    ],
)
def test_signature_errors(text, message):
    with pytest.raises(UsageError, match=message):
        parse_signature(text, PARAMETERS)
