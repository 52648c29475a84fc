"""Every command's JSON against its schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanalyze import schemas
from kanalyze.cli.app import cli
from kanalyze.results.kernel import SCHEMA

jsonschema = pytest.importorskip("jsonschema")
pytestmark = [pytest.mark.usefixtures("shared_cache"), pytest.mark.slow("runs whole commands")]

USER_KERNELS = Path(__file__).parents[1] / "data" / "user_kernels.py"
COMMANDS = [
    ["list"],
    ["cache"],
    ["ptx", "gelu"],
    ["ptx", "gelu", "--listing"],
    ["ptx", "matmul_relu", "--arch", "sm_90", "--listing"],
    ["ptx", "flash_attention", "--arch", "sm_100", "--listing"],
    ["ptx", "flash_attention", "missing.ptx", "--arch", "sm_80"],
    ["ttir", "softmax"],
    ["ttir", "flash_attention"],
    ["compile", "gelu", "-o", "OUT"],
    ["compile", f"{USER_KERNELS}:copy_kernel", "-o", "OUT",
     "--signature", "*fp32, *fp32, i32", "--set", "BLOCK=128", "--set", "EVEN=0"],
]  # fmt: skip


def errors(name: str, data: object) -> list[str]:
    validator = jsonschema.Draft202012Validator(schemas.load(name))
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(data)]


@pytest.mark.parametrize("name", schemas.names())
def test_schemas_are_valid_and_strict(name: str) -> None:
    schema = schemas.load(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"]["const"] == f"kanalyze.{name}/1"

    def objects(node: object) -> list[dict[str, object]]:
        if isinstance(node, list):
            return [o for item in node for o in objects(item)]
        if not isinstance(node, dict):
            return []
        own = [node] if node.get("type") == "object" else []
        return own + [o for item in node.values() for o in objects(item)]

    for found in objects(schema):
        assert "additionalProperties" in found
        if found["additionalProperties"] is False:
            assert set(found["required"]) == set(found["properties"])  # type: ignore[call-overload]


def test_an_unknown_schema() -> None:
    with pytest.raises(KeyError):
        schemas.load("../ptx")


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda words: " ".join(Path(word).name for word in words)
)
def test_the_output_follows_the_schema(command: list[str], tmp_path: Path) -> None:
    command = [str(tmp_path / "out") if word == "OUT" else word for word in command]
    if command[0] != "list":
        pytest.importorskip("triton")
    result = CliRunner().invoke(cli, [*command, "--format", "json"])
    assert result.exit_code == (3 if "missing.ptx" in command else 0), result.stderr
    assert errors(command[0], json.loads(result.stdout)) == []


def test_a_schema_refuses_what_is_not_in_it() -> None:
    good = {"schema": SCHEMA, "kernels": [], "functions": [], "skipped": [], "unknown": []}
    assert errors("ptx", good) == []
    assert errors("ptx", {**good, "more": 1})
    assert errors("ptx", {**good, "skipped": [{"file": "a", "line": -1, "reason": ""}]})
    del good["unknown"]
    assert errors("ptx", good)


def test_written_files_are_those_named(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    result = CliRunner().invoke(
        cli, ["compile", "gelu", "-o", str(tmp_path / "a/b"), "--format", "json"]
    )
    data = json.loads(result.stdout)
    assert list(data["files"]) == ["ttir", "ttgir", "llir", "ptx", "cubin", "sass"]
    for path in data["files"].values():
        assert Path(path).stat().st_size > 0
    assert data["grid"] == [65536, 1, 1]
    assert data["signature"]["x_ptr"] == "*fp32"
    assert data["arguments"]["x_ptr"] == {"pointer": "fp32", "dims": [67108864]}
    text = CliRunner().invoke(cli, ["compile", "gelu", "-o", str(tmp_path / "a/b")]).stdout
    assert text.splitlines()[-6:] == list(data["files"].values())
    assert "registers per thread" in text
