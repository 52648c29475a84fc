"""``--fail-on``, ``--format sarif`` and ``--format github`` of `kanalyze ptx` and `traffic`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze.cli.app import cli

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"
CONFLICTS = SAMPLES / "bank-conflicts"
MISMATCH = SAMPLES / "launch-mismatch"  # an error of a launch


def run(command: str, folder: Path, *arguments: str, stem: str = "fires") -> Result:
    path = folder / f"{stem}.ptx"
    launch = ["--launch", str(path.with_suffix(".json"))] if command == "traffic" else []
    return CliRunner().invoke(cli, [command, str(path), *launch, *arguments])


@pytest.mark.parametrize(
    ("command", "ignore", "severities"),
    [
        ("ptx", (), {"info"}),  # the shape of a block is not known of PTX alone
        ("traffic", (), {"warning", "info"}),
        ("traffic", ("--ignore", "bank-conflicts"), {"info"}),
    ],
    ids=["kernel", "launch", "ignored"],
)
def test_a_finding_fails_a_run(command: str, ignore: tuple[str, ...], severities: set[str]) -> None:
    data = json.loads(run(command, CONFLICTS, "--format", "json", *ignore).stdout)
    findings = data["kernels"][0]["findings"] if command == "ptx" else data["findings"]
    assert {finding["severity"] for finding in findings} == severities
    assert run(command, CONFLICTS, *ignore).exit_code == 0
    levels = ("error", "warning", "info")
    for number, level in enumerate(levels, 1):
        fails = bool(severities & set(levels[:number]))
        done = run(command, CONFLICTS, "--fail-on", level, *ignore)
        assert done.exit_code == fails


def test_an_error_of_a_launch_fails_a_run_at_every_level() -> None:
    for level in ("error", "warning", "info"):
        assert run("traffic", MISMATCH, "--fail-on", level).exit_code == 1
    assert run("traffic", MISMATCH, "--fail-on", "error", stem="mended").exit_code == 0


@pytest.mark.parametrize("command", ["ptx", "traffic"])
@pytest.mark.parametrize("format_", ["sarif", "github", "json"])
def test_a_run_fails_in_every_format(command: str, format_: str) -> None:
    done = run(command, CONFLICTS, "--format", format_, "--fail-on", "info")
    assert done.exit_code == 1
    assert "bank-conflicts" in done.stdout


@pytest.mark.parametrize("command", ["ptx", "traffic"])
def test_sarif_has_the_findings_of_the_json(command: str) -> None:
    """Rule, level and line of each, and its rule in the list that ``ruleIndex`` points into."""
    data = json.loads(run(command, CONFLICTS, "--format", "json").stdout)
    findings = data["kernels"][0]["findings"] if command == "ptx" else data["findings"]
    (log,) = json.loads(run(command, CONFLICTS, "--format", "sarif").stdout)["runs"]
    levels = {"error": "error", "warning": "warning", "info": "note"}
    assert findings
    for finding, result in zip(findings, log["results"], strict=True):
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert result["ruleId"] == finding["id"]
        assert result["level"] == levels[finding["severity"]]
        assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == finding["id"]
        source = finding["source"] or {"line": finding["line"]}
        assert place["region"]["startLine"] == source["line"]
        assert place["artifactLocation"]["uri"].endswith(("fires.ptx", "fires.cu"))
    commands = run(command, CONFLICTS, "--format", "github").stdout.splitlines()
    assert len(commands) == len(findings)
    for finding, line in zip(findings, commands, strict=True):
        assert f"title=kanalyze {finding['id']}::" in line
