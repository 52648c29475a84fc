"""Small inputs that once got a wrong answer, each with its right one.

They lie in a folder beside the checkout, where there is one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanalyze.cli.app import cli

CASES = Path(__file__).parents[2] / "shared" / "cases"

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles kernels, and estimates some of them"),
    pytest.mark.skipif(not CASES.is_dir(), reason="the folder of cases is not there"),
]

RIGHT = {
    "merged_loads": (
        "traffic k.py:dequant --signature *i8:16,*fp32:16,*fp16:16,32,1024 --launch l.json --exact",
        0, [r"131,072 +589,824 .* loads"],
    ),
    "tma_stride l511": (
        "traffic k.py:copy_tiles --launch l511.json --fail-on warning --exact --no-proof",
        1, [r"error\[tensor-map\].*1022"],
    ),
    "tma_stride l512": (
        "traffic k.py:copy_tiles --launch l512.json --fail-on warning --exact --no-proof",
        0, [],
    ),
    "packed_16_bit": (
        "ptx k.py:by_group --arch sm_90 --summary --no-proof", 0, [r"9 of 9 accesses analysed"],
    ),
    "constant_by_lane": (
        "traffic h.ptx --launch h_by_lane.json --exact", 0,
        [r"\[constant-by-lane\] .* at 32 addresses"],
    ),
    "cas_loop": (
        "ptx a.sm_80.ptx --summary", 0, [r"\[cas-loop\]", r"^(?!.*narrow-access)"],
    ),
    "wait_all": (
        "ptx wait0.ptx --summary", 0, [r"\[copies-waited-for\]", r"^(?!.*steady part)"],
    ),
    "spill_by_record": (
        "traffic row_nll.py --launch same.json --fail-on warning", 1,
        [r"warning\[register-spill\]", "32768"],
    ),
    "pointer_in_variable": (
        "traffic k.py:named --signature *fp32:16,*fp32:16,i32,i32,1024 --launch named.json --exact"
        " --no-proof",
        0, [r"bytes +x: 587,776 B"],
    ),
    "called_function": (
        "traffic called_function.ptx --launch called_function.json --exact", 0,
        [r"2 of 2 accesses", r"32 +128 .* loads", r"x: 1,024 B"],
    ),
    "struct_pointer": (
        "ptx struct_pointer.ptx --summary", 0,
        [r"%tid.x .*k_param_0, k_param_1: 4 B a thread", r"1 element per thread"],
    ),
    "param_by_register": (
        "ptx param_by_register.ptx --summary", 0, [r"2 of 2 accesses analysed"],
    ),
    "static_and_dynamic_shared": (
        "ptx static_and_dynamic_shared.ptx --kernel a --summary", 0, [r"512 B per block"],
    ),
    "unrolled_with_tail": (
        "ptx unrolled_with_tail.ptx --summary", 0,
        [r"4 × st.global.f32 in each iteration", r"8 elements per thread",
         r"^(?!.*5 stores .* could be)"],
    ),
    "dsmem_atomic": (
        "ptx dsmem_atomic.ptx --kernel k --summary", 0,
        [r"distributed shared memory", r"clusters of 2 x 1 x 1"],
    ),
    "unknown_address_role": (
        "ptx unknown_address_role.ptx --summary", 0, [r"%tid.x .*in an address that is not known"],
    ),
    "drawn_gather": (
        "traffic paged.py:paged_gather --signature"
        " *fp16:16,*fp16:16,*i32:16,*i32:16,*fp32:16,i32:16,i32:16,fp32,16,128 --launch paged.json"
        " --assume table_ptr=uniform:0:16384 --assume len_ptr=uniform:512:4096 --exact --no-proof",
        0, [r"loads: unknown", r"^(?!.*34,272,768)"],
    ),
    "half_masked": (
        "traffic norm.py:rmsnorm_residual --launch norm4097.json --fail-on warning", 1,
        [r"warning\[half-masked-block\].* 47.\d of 108 µs are lost"],
    ),
    "half_masked few": (
        "traffic norm.py:rmsnorm_residual --launch few.json", 3, [r"params: found 1 arguments"],
    ),
    "two_entries": ("ptx internal_error_keyerror.ptx --summary", 0, [r"\btwo_entries\b"]),
    "tile_source_section": ("ptx tile_source_section.ptx --summary", 0, [r"1 of 1 accesses"]),
    "no_semicolon_prototype": ("ptx no_semicolon_prototype.ptx --summary", 0, [r"sm_20"]),
    "trailing_nul": ("ptx trailing_nul.ptx --summary", 0, [r"10 per thread"]),
    "driver_at_import": ("ptx driver_at_import.py:twice --summary --no-proof", 0, [r"\btwice\b"]),
    "hint_compiles": ("ptx hint.py:rotate --summary --no-proof", 0, [r"\brotate\b"]),
    **{
        f"impossible_launches {name}": (
            f"traffic copy.ptx --launch {name}.json --exact", 3, [r"not a launch: \w+.*expected"],
        )
        for name in ("b2048", "cluster", "dev_num", "g264", "g32", "g4", "gfrac", "gridy", "gstr",
                     "gstring", "shared_str", "toomany", "z65")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT)
def test_the_right_answer(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, code, patterns = RIGHT[case]
    monkeypatch.chdir(CASES / case.split()[0])
    done = CliRunner().invoke(cli, words.split())
    assert done.exit_code == code, done.output
    text = re.sub(r"\s*\n +", " ", done.output)  # what is wrapped is one line
    for pattern in patterns:
        flags = re.DOTALL if pattern.startswith("^(?!") else re.MULTILINE
        assert re.search(pattern, text, flags), f"{pattern}: {done.output}"
