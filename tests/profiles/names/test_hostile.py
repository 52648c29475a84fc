"""Strings that are no kernel names, or only pretend to be: no error, no long wait."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from kanalyze.profiles.names import decode, explain
from kanalyze.profiles.names.decode import decode_uncached

SECONDS = 3.0

HOSTILE = {
    "empty": "",
    "space": " \t\n",
    "mark": "...",
    "ellipsis": "…",
    "escape": "\x1b[31mred\x1b[0m\x00\x07",
    "surrogate": "\udc80\ud800kernel\udfff",
    "newline": "volta_sgemm_64x32\n_tn",
    "markup": "[bold]ampere_sgemm_128x32_nn[/bold]",
    "nul": "at::native::\0",
    "angle": "<" * 10_000,
    "closed": "f" + "<a" * 10_000 + ">" * 10_000,
    "wrong_way": ">" * 10_000,
    "round": "void f" + "(" * 10_000,
    "mixed": "f<(" * 5_000 + ")>" * 5_000,
    "lambda": "at::native::f<" + "{lambda(" * 3_000,
    "wrappers": "cutlass::Kernel<" * 2_000 + "x" + ">" * 2_000,
    "adapters": "void at::native::elementwise_kernel<1, 2, "
    + "at::native::gpu_kernel_impl<" * 2_000
    + "x",
    "scopes": "a::" * 20_000,
    "commas": "void at::native::vectorized_elementwise_kernel<" + "1," * 20_000,
    "operators": "operator<" * 5_000,
    "megabyte": "x" * 1_000_000,
    "megabyte_cpp": "void at::native::f<" + "a<b, " * 200_000,
    "megabyte_words": "cutlass_tensorop_" + "a_" * 500_000,
    "words_at_the_limit": "cutlass_tensorop_s16816gemm_" + "a_" * 2_000,
    "types_beyond_the_limit": "sm90_xmma_gemm_" + "f16" * 20_000,
    "types": "sm90_xmma_gemm_" + "f16" * 1_300,
    "digits": "cutlass_80_tensorop_s1688gemm_" + "1" * 4_000,
    "long_number": "void at::native::vectorized_elementwise_kernel<" + "9" * 30_000 + ", a>",
    "triton": "k_0d" + "1" * 4_000,
    "triton_zeros": "k" + "_0" * 2_000,
    "inductor": "triton_poi_fused_" + "add_" * 900 + "0",
    "tensile": "Cijk_Ailk_Bljk_SB_MT1x1x1_" + "MI1x1x1_" * 450,
    "html": "&lt;" * 10_000,
    "entities": "&" * 10_000,
    "mangled": "_Z",
    "mangled_pointers": "_Z1f" + "P" * 60_000 + "i",
    "mangled_templates": "_Z1fI" + "1aI" * 20_000,
    "mangled_nested": "_Z" + "N" * 60_000,
    "mangled_expression": "_Z1fIX" + "ng" * 20_000 + "Li1EEEvv",
    "mangled_bomb": "_Z1f1aI1b1cE" + "".join(f"1aIS{c}_S{c}_S{c}_E" for c in "0123456789ABCDEFG"),
    "mangled_length": "_ZN99999999999999999999f",
    "mangled_surrogate": "_Z1f\udc80",
    "underscores": "_" * 60_000,
    "suffix": ".kd" * 20_000,
    "unicode": "кernel_" * 500 + "🙂",
    "format": "%s%n{0}{}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile(text: str) -> None:
    begin = time.perf_counter()
    kernel = decode_uncached(text)
    assert time.perf_counter() - begin < SECONDS
    assert kernel.name == text
    for field in kernel.fields:
        assert kernel.text[field.start : field.end] == field.text
    explain(kernel)


def test_a_very_long_name_is_cut_like_a_profiler_would() -> None:
    kernel = decode("void at::native::vectorized_elementwise_kernel<4, " + "a<b, " * 300_000)
    assert kernel.truncated
    assert kernel.family == "at_native"
    assert kernel.decoded["vec_size"] == 4


def test_random_mixtures_never_raise() -> None:
    rng = random.Random(4)
    words = [
        "cutlass", "80", "_", "tensorop", "s16816gemm", "128x128", "x", "::", "<", ">", "(", ")",
        "at::native::", "vectorized_elementwise_kernel", "nvjet_", "tst", "sm90_xmma_gemm_", ",",
        "{lambda()#1}", "[lambda(int) (instance 1)]", "'lambda'", "(int)4", "_Z", "N", "E", "1f",
        "triton_poi_fused_", "0d1d2", "...", "…", "&lt;", " ", "void ", "const", "operator()",
        "(anonymous namespace)", "<unnamed>", "Cijk_Ailk_Bljk_", "SB_", "MT64x64x8", "\x1b", "é",
    ]  # fmt: skip
    for _ in range(4_000):
        text = "".join(rng.choice(words) for _ in range(rng.randrange(1, 25)))
        kernel = decode_uncached(text)
        for field in kernel.fields:
            assert kernel.text[field.start : field.end] == field.text


def test_the_process_survives_hostile_mangled_names() -> None:
    """A native demangler would overflow its stack here and take the process with it."""
    code = (
        "from kanalyze.profiles.names import decode\n"
        "for text in ('_Z1f'+'P'*300000+'i', '_Z1fI'+'1aI'*300000, '_Z1f'+'Z'*300000):\n"
        "    assert decode(text).family == 'mangled'\n"
        "print('alive')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "alive", done.stderr


def test_reading_time_grows_with_the_length_only() -> None:
    def seconds(repeat: int) -> float:
        text = "void at::native::reduce_kernel<512, 1, " + "a<b, c<d>, " * repeat
        best = 1e9
        for _ in range(5):
            begin = time.process_time()
            decode_uncached(text)
            best = min(best, time.process_time() - begin)
        return best

    small, large = seconds(500), seconds(4_000)
    assert large < small * 8 * 3
