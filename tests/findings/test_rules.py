"""Findings: each rule is explained, fires on its sample and is silent on the mended one.

``samples/findings/ID/`` holds ``fires.*`` and ``mended.*``: kernel files (``.py``), PTX or CUDA C++
with a launch record beside it (``.json``), or a profile. A comment "options: …" in the first lines
holds options of the command. ``matmul.toml`` has the samples that are launches of ``matmul.py``.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanalyze.cli.app import cli
from kanalyze.findings import catalogue

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples" / "findings"
MATMUL = SAMPLES / "matmul.py"
PRODUCTS = tomllib.loads((SAMPLES / "matmul.toml").read_text("utf-8"))
KERNELS = ("gelu", "softmax", "row_sum", "matmul_relu", "flash_attention")


def samples(id_: str, stem: str) -> list[Path]:
    """The samples themselves, of a kernel and of a profile: not the launch record beside them."""
    found = [p for p in SAMPLES.glob(f"{id_}/*") if p.name.partition(".")[0] == stem]
    found += [MATMUL] if id_ in PRODUCTS else []
    kinds = [p for kind in (".py", ".ptx", ".cubin", ".cu") for p in found if p.suffix == kind]
    profiles = [p for p in found if p not in kinds and p.name != f"{stem}.json"]
    return [*kinds[:1], *(profiles if "decode" in catalogue.RULES[id_] else [])] or found


def arguments_for(id_: str, path: Path, stem: str) -> list[str]:
    """The command line that reports on a sample."""
    of_kernels = [command for command in catalogue.RULES[id_] if command != "decode"]
    if path.suffix not in (".py", ".ptx", ".cubin", ".cu"):
        return ["decode", str(path), "--format", "json"]
    command = of_kernels[-1]
    line = [command, str(path), "--format", "json"]
    if path == MATMUL:
        line += [f"--set={name}={value}" for name, value in PRODUCTS[id_][stem].items()]
    elif path.suffix in (".ptx", ".py", ".cu"):
        head = "\n".join(path.read_text("utf-8").splitlines()[:15])
        said = re.search(r"options: (.*)", head)
        line += shlex.split(said[1]) if said else []
    launch = path.with_suffix(".json")
    if command == "traffic" and path.suffix != ".py" and launch.exists():
        line += ["--launch", str(launch)]
    elif command == "traffic" and path.suffix != ".py":
        line[0] = "ptx"
    return line


def findings_in(arguments: list[str]) -> list[dict[str, object]]:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.stderr
    data = json.loads(done.stdout)
    failed = [u for u in data["unknown"] if u["field"].endswith("findings")]
    assert not failed
    if "kernels" in data and "findings" not in data:
        return [f for kernel in data["kernels"] for f in kernel["findings"]]
    return list(data["findings"])


@pytest.mark.parametrize("id_", catalogue.RULES)
def test_a_rule_is_explained(id_: str) -> None:
    explanation = catalogue.explanation(id_)
    assert explanation.title.endswith(".")
    assert "\n" not in explanation.title
    assert tuple(explanation.sections) == catalogue.SECTIONS
    assert all(len(text) > 20 for text in explanation.sections.values())


def test_rules_are_reported_by_the_commands_that_the_catalogue_lists() -> None:
    commands: dict[str, tuple[str, ...]] = {id_: () for id_ in catalogue.RULES}
    for rule in catalogue.rules("traffic"):
        of_kernels = rule.check_kernel is not None
        assert of_kernels or rule.check_launch is not None
        commands[rule.id] = ("ptx", "traffic") if of_kernels else ("traffic",)
    for profile_rule in catalogue.profile_rules():
        commands[profile_rule.id] += ("decode",)
    assert commands == catalogue.RULES
    of_ptx = [id_ for id_, listed in commands.items() if "ptx" in listed]
    assert [rule.id for rule in catalogue.rules("ptx")] == of_ptx


def test_every_rule_module_is_in_the_catalogue() -> None:
    for package, rules in (
        ("rules", catalogue.rules("traffic")),
        ("profile_rules", catalogue.profile_rules()),
    ):
        files = {p.stem for p in (ROOT / "kanalyze" / "findings" / package).glob("[a-z]*.py")}
        assert files == {rule.id.replace("-", "_") for rule in rules}


def test_explaining_imports_no_rule() -> None:
    code = (
        "import sys\n"
        "from kanalyze.cli import main\n"
        "try:\n    main(['explain'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stderr.strip().splitlines()[-1]))
    rules = ("kanalyze.findings.rules.", "kanalyze.findings.profile_rules.")
    assert not [m for m in loaded if m.startswith(rules)]
    assert not loaded & {"networkx", "numpy", "kanalyze.findings.facts"}


@pytest.mark.parametrize("id_", catalogue.RULES)
def test_a_rule_fires_on_its_sample(id_: str) -> None:
    for path in samples(id_, "fires"):
        found = [f for f in findings_in(arguments_for(id_, path, "fires")) if f["id"] == id_]
        assert found, path
        for finding in found:
            assert finding["message"]
            assert finding["severity"] in ("error", "warning", "info")


@pytest.mark.parametrize("id_", catalogue.RULES)
def test_a_rule_is_silent_on_the_mended_sample(id_: str) -> None:
    for path in samples(id_, "mended"):
        found = findings_in(arguments_for(id_, path, "mended"))
        assert [f for f in found if f["id"] == id_] == []
        assert [f for f in found if f["severity"] in ("error", "warning")] == []


def test_no_sample_without_a_rule() -> None:
    folders = {p.name for p in SAMPLES.iterdir() if p.is_dir()}
    assert folders | set(PRODUCTS) == set(catalogue.RULES)
    assert all(set(sides) == {"fires", "mended"} for sides in PRODUCTS.values())


@pytest.mark.parametrize("kernel", KERNELS)
def test_bundled_kernels_raise_no_warning(kernel: str) -> None:
    for command in ("ptx", "traffic"):
        found = findings_in([command, kernel, "--format", "json"])
        assert [f for f in found if f["severity"] in ("error", "warning")] == []
