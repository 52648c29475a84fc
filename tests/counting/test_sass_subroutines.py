"""A subroutine that two loops call: an H200 does not run what follows once for each warp."""

from __future__ import annotations

import pytest

from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.launch.record import Launch
from kanalyze.sass.cfg import build
from kanalyze.sass.parse import parse_sass

# Where the branches go back, both calls stand in loops; where they go on, in none.
CODE = """
	.target	sm_90
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/                   ISETP.GE.AND P0, PT, R0, 0x8, PT ;
        /*0020*/               @P0 BRA `(.L_x_2) ;
.L_x_1:
        /*0030*/                   MOV R8, 0x50 ;
        /*0040*/                   CALL.REL.NOINC `($k$f) ;
        /*0050*/                   VIADD R0, R0, 0x1 ;
        /*0060*/                   ISETP.GE.AND P1, PT, R0, 0x8, PT ;
        /*0070*/              @!P1 BRA `(.L_x_{first}) ;
.L_x_2:
        /*0080*/                   MOV R8, 0xa0 ;
        /*0090*/                   CALL.REL.NOINC `($k$f) ;
        /*00a0*/                   VIADD R0, R0, 0x1 ;
        /*00b0*/                   ISETP.GE.AND P1, PT, R0, 0x20, PT ;
        /*00c0*/              @!P1 BRA `(.L_x_{second}) ;
.L_x_3:
        /*00d0*/                   BSYNC B0 ;
        /*00e0*/                   STG.E desc[UR4][R2.64], R0 ;
        /*00f0*/                   EXIT ;
$k$f:
        /*0100*/                   IMAD.MOV.U32 R9, RZ, RZ, 0x0 ;
        /*0110*/                   RET.REL.NODEC R8 `(k) ;
"""


@pytest.mark.parametrize(("first", "second", "apart"), [(1, 2, True), (2, 3, False)])
def test_what_follows_loops_with_calls_is_unknown(first: int, second: int, apart: bool) -> None:
    text = CODE.replace("{first}", str(first)).replace("{second}", str(second))
    module = parse_sass(text)
    launch = Launch("k", grid=(1, 1, 1), block=(32, 1, 1), params=())
    code = SassKernelLaunch(build(module.functions[0]), module, (), launch)
    stored = next(counts for counts in code.accesses if counts.access.kind == "store")
    assert bool(code.apart) == apart
    assert (stored.block in code.apart) == apart
    if apart:
        assert stored.executed is None
