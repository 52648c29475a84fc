"""Rules on a profile: `kanalyze decode --ignore`, `--fail-on`, what `kanalyze explain` lists."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze.cli.app import cli
from kanalyze.findings import catalogue

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"

PROFILES = (
    "wave-quantisation", "tile-quantisation", "fp32-simt-gemm", "older-architecture",
    "tensor-layout-conversion", "tiny-kernels", "unfused-elementwise",
)  # fmt: skip


def decode(rule: str, *arguments: str, stem: str = "fires") -> Result:
    path = SAMPLES / rule / f"{stem}.trace.json"
    return CliRunner().invoke(cli, ["decode", str(path), *arguments])


def ids(result: Result) -> list[str]:
    return [finding["id"] for finding in json.loads(result.stdout)["findings"]]


def test_all_rules_on_profiles_are_listed() -> None:
    assert {rule.id for rule in catalogue.profile_rules()} == set(PROFILES)


@pytest.mark.parametrize("rule", PROFILES)
def test_a_finding_can_be_ignored(rule: str) -> None:
    assert rule in ids(decode(rule, "--format", "json"))
    assert rule not in ids(decode(rule, "--format", "json", "--ignore", rule))
    assert f"[{rule}]" not in decode(rule, "--ignore", rule.upper().replace("-", "_")).stdout


def test_a_finding_fails_a_run() -> None:
    assert decode("fp32-simt-gemm").exit_code == 0
    assert decode("fp32-simt-gemm", "--fail-on", "warning").exit_code == 1
    assert decode("fp32-simt-gemm", "--fail-on", "error").exit_code == 0
    assert decode("tiny-kernels", "--fail-on", "warning").exit_code == 0
    assert decode("tiny-kernels", "--fail-on", "info").exit_code == 1
    assert (
        decode("fp32-simt-gemm", "--fail-on", "info", "--ignore", "fp32-simt-gemm").exit_code == 0
    )
    assert decode("fp32-simt-gemm", "--fail-on", "info", stem="mended").exit_code == 0


def test_what_cannot_be_proven_has_no_option() -> None:
    assert decode("tiny-kernels", "--no-proof").exit_code == 2
    assert decode("tiny-kernels", "--ignore", "no-such-rule").exit_code == 2


def test_a_profile_needs_no_rules_on_kernels() -> None:
    path = SAMPLES / "tiny-kernels" / "fires.trace.json"
    code = (
        "import sys\n"
        "from kanalyze.cli import main\n"
        f"try:\n    main(['decode', {str(path)!r}])\nexcept SystemExit:\n    pass\n"
        "print(sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stderr.strip().splitlines()[-1]))
    assert not loaded & {"networkx", "numpy", "kanalyze.findings.facts"}
    assert not [m for m in loaded if m.startswith("kanalyze.findings.rules")]
