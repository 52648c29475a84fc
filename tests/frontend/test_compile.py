"""Compiling kernels, against Triton's tools and launcher as oracles; needs no torch and no GPU."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kanalyze import cache
from kanalyze.errors import InputError, KanalyzeError, MissingToolError, UsageError
from kanalyze.frontend import kernel_file
from kanalyze.frontend.compile import ARCHS, Compiled, compile_kernel, normalise_arch
from kanalyze.toolchain import ptxas, tools

pytest.importorskip("triton")
import triton

pytestmark = pytest.mark.slow("compiles every bundled kernel")

ROOT = Path(__file__).resolve().parents[2]
USER = ROOT / "tests/data/user_kernels.py"
KERNELS = ("flash_attention", "gelu", "matmul_relu", "row_sum", "softmax")
STAGES = ("ttir", "ttgir", "llir", "ptx", "cubin", "sass")
VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])


def user(name, **keywords) -> Compiled:
    return compile_kernel(f"{USER}:{name}", **keywords)


def independent_ptxas(compiled: Compiled, tmp_path: Path) -> dict[str, int]:
    """Run ptxas as Triton's own module says, and read its text in the dumbest way."""
    backend = __import__("triton.backends.nvidia.compiler", fromlist=["get_ptxas"])
    get_ptxas = backend.get_ptxas
    capability = int(compiled.arch[3:])
    ptxas = get_ptxas(capability) if inspect.signature(get_ptxas).parameters else get_ptxas()
    target = re.search(r"\.target (sm_\w+)", compiled.ptx)[1]
    (tmp_path / "k.ptx").write_text(compiled.ptx)
    extra = ["--regAllocOptLevel=2"] if VERSION >= (3, 7) else []
    command = [ptxas.path, "-lineinfo", "-v", *extra, f"--gpu-name={target}", "k.ptx", "-o", "k.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    text = done.stdout + done.stderr

    def number(pattern):
        found = re.findall(pattern, text)
        assert len(found) == 1, text
        return int(found[0])

    return {
        "registers": number(r"Used (\d+) registers"),
        "barriers": number(r"used (\d+) barriers"),
        "stack": number(r"(\d+) bytes stack frame"),
        "stores": number(r"(\d+) bytes spill stores"),
        "loads": number(r"(\d+) bytes spill loads"),
    }


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", KERNELS)
def test_bundled_kernels_compile_and_resources_are_what_the_tools_say(name, arch, tmp_path):
    compiled = compile_kernel(name, arch=arch)
    said = independent_ptxas(compiled, tmp_path)
    resources = compiled.resources
    assert resources.registers == said["registers"]
    assert resources.barriers == said["barriers"]
    assert resources.stack_bytes == said["stack"]
    assert resources.spill_store_bytes == said["stores"]
    assert resources.spill_load_bytes == said["loads"]
    assert resources.static_shared_bytes == 0
    assert resources.shared_bytes == compiled.metadata["shared"]

    (tmp_path / "k.cubin").write_bytes(compiled.cubin)
    dump = subprocess.run(
        [tools.find("cuobjdump"), "-res-usage", "k.cubin"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert resources.registers == int(re.findall(r"REG:(\d+)", dump)[0])
    assert resources.stack_bytes == int(re.findall(r"STACK:(\d+)", dump)[0])
    assert resources.constant_bytes == int(re.findall(r"CONSTANT\[0\]:(\d+)", dump)[0])
    of_cubin = tools.cubin_resources(compiled.cubin)[compiled.name]
    assert of_cubin.registers == resources.registers
    assert of_cubin.static_shared_bytes == 0

    assert compiled.arch == arch
    assert f".entry {compiled.name}(" in compiled.ptx
    base = compiled.metadata["loc_column_base"]  # a def stands in the first column
    assert re.search(rf"^\s*\.loc\s+1 \d+ {base}\b", compiled.ptx, re.MULTILINE)
    assert "tt.func public" in compiled.ttir
    assert "ttg.num-warps" in compiled.ttgir
    assert f"@{compiled.name}(" in compiled.llir
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.kernel == name
    assert compiled.grid is not None
    assert len(compiled.grid) == 3
    # Triton appends two pointers of its own to the parameters.
    parameters = len(re.findall(r"_param_\d+,?\n", compiled.ptx.split(")")[0]))
    in_ptx = [n for n, kind in compiled.signature.items() if kind != "constexpr"]
    assert parameters == len(in_ptx) + 2
    assert set(in_ptx) <= set(compiled.arguments)


@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_103", "sm_90a", "sm_100f"])
def test_further_architectures(arch):
    if arch == "sm_103" and VERSION < (3, 6):
        with pytest.raises(MissingToolError, match=r"sm_103.*pip install --upgrade triton"):
            compile_kernel("gelu", arch=arch)
        return
    compiled = compile_kernel("gelu", arch=arch)
    assert compiled.arch == arch.rstrip("af")
    assert compiled.resources.registers > 0


def test_architecture_names():
    assert [normalise_arch(arch) for arch in ARCHS] == [80, 86, 89, 90, 100, 103, 120]
    assert normalise_arch("sm_90a") == 90
    assert normalise_arch("90") == 90
    for text in ("sm_91", "sm_80a", "hopper", "", "sm_90b"):
        with pytest.raises(UsageError, match="unknown architecture"):
            normalise_arch(text)


@pytest.mark.parametrize("name", KERNELS)
def test_every_dtype(name):
    for dtype in kernel_file.bundled()[name].dtypes:
        compiled = compile_kernel(name, dtype=dtype)
        assert f"*{dtype}" in compiled.signature.values()


def test_settings_reach_the_kernel():
    compiled = compile_kernel("gelu", settings={"n": "1000", "BLOCK_SIZE": 256}, num_warps=8)
    assert compiled.specialization.get("n") is None  # 1000 is not divisible by 16
    assert compiled.constexprs["BLOCK_SIZE"] == 256
    assert compiled.metadata["num_warps"] == 8
    assert compiled.arguments["n"] == 1000
    assert compiled.grid == (4, 1, 1)
    assert ".reqntid 256" in compiled.ptx
    one = compile_kernel("gelu", settings={"n": 1})
    assert one.signature["n"] == "constexpr"
    assert one.specialization["n"] == ("equal to 1",)
    assert one.arguments["n"] == 1


def test_write_and_sass(tmp_path):
    compiled = compile_kernel("gelu")
    written = compiled.write(tmp_path / "new" / "folder")
    names = [path.name for path in written]
    assert names == [f"gelu_kernel.{stage}" for stage in STAGES]
    assert written[3].read_text() == compiled.ptx
    assert written[4].read_bytes() == compiled.cubin
    assert "EXIT" in compiled.sass
    assert 'gelu.py", line' in compiled.sass
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        compiled.write(tmp_path / "file")


# --- a user's file -------------------------------------------------------------------------------


def test_user_kernel_by_position_and_by_name():
    compiled = user("norm_kernel", signature="*fp32:16, *bf16, i32:16, fp32, 1024")
    assert compiled.signature == {
        "x_ptr": "*fp32", "y_ptr": "*bf16", "n": "i32", "scale": "fp32",
        "BLOCK": "constexpr", "ACTIVATION": "constexpr",
    }  # fmt: skip
    assert compiled.constexprs == {"BLOCK": 1024, "ACTIVATION": "none"}
    assert compiled.specialization == {"x_ptr": ("divisible by 16",), "n": ("divisible by 16",)}
    assert compiled.kernel is None
    assert compiled.grid is None
    assert compiled.source_function == "norm_kernel"
    assert compiled.source_file == USER
    assert str(USER) in compiled.ptx
    by_name = user(
        "norm_kernel",
        signature="x_ptr=*float32:16, y_ptr=*bf16, n=i32:16, scale=fp32, ACTIVATION='none'",
        settings={"BLOCK": 1024},
    )
    assert by_name.ptx == compiled.ptx


def test_settings_specialise_as_the_launcher_would():
    compiled = user(
        "norm_kernel",
        signature="*fp32:16, *fp32:16",
        settings={"n": 4096, "scale": 0.5, "BLOCK": "128", "ACTIVATION": "relu"},
    )
    assert compiled.signature["n"] == "i32"
    assert compiled.specialization["n"] == ("divisible by 16",)
    assert compiled.signature["scale"] == "fp32"
    assert compiled.arguments["scale"] == 0.5
    assert compiled.constexprs["ACTIVATION"] == "relu"
    assert "max" in compiled.ptx


def test_annotations_are_honoured():
    compiled = user(
        "strided_kernel",
        signature="*fp32:16",
        settings={"n": 1, "stride": 32, "wide": 1, "flag": "true", "BLOCK": 64},
    )
    assert compiled.signature == {
        "x_ptr": "*fp32", "n": "i32", "stride": "i32", "wide": "i64", "flag": "u1",
        "BLOCK": "constexpr",
    }  # fmt: skip
    assert compiled.specialization == {"x_ptr": ("divisible by 16",)}


def test_autotune_and_heuristics():
    compiled = user("copy_kernel", signature="*fp32:16, *fp32:16", settings={"n": 4096})
    assert compiled.constexprs == {"BLOCK": 128, "EVEN": True}
    assert compiled.metadata["num_warps"] == 4
    assert compiled.metadata["num_stages"] == 2
    heuristics, autotune = compiled.assumptions
    assert autotune.startswith("autotune: configuration 0 of 2 (from 0; --config changes it)")
    assert "): BLOCK=128, num_warps=4" in autotune
    assert heuristics == "heuristics, --set changes it: EVEN=True"
    chosen = user(
        "copy_kernel", signature="*fp32:16, *fp32:16", num_warps=8,
        settings={"n": 1000, "BLOCK": 256},
    )  # fmt: skip
    assert chosen.constexprs == {"BLOCK": 256, "EVEN": False}
    assert chosen.metadata["num_warps"] == 8
    unknown = user("copy_kernel", signature="*fp32:16, *fp32:16, i32")  # EVEN needs n
    assert unknown.constexprs["EVEN"] is False
    assert unknown.assumptions[0].endswith("changes them: EVEN=False")
    other = user("copy_kernel", signature="*fp32:16, *fp32:16", settings={"n": 4096}, config=1)
    assert other.constexprs["BLOCK"] == 256
    with pytest.raises(UsageError, match="copy_kernel has 2 configurations"):
        user("copy_kernel", config=2)


def test_a_file_written_like_a_bundled_kernel_uses_its_own_plan(tmp_path):
    copy = tmp_path / "gelu.py"
    copy.write_bytes((ROOT / "kernels/gelu.py").read_bytes())
    compiled = compile_kernel(str(copy), dtype="fp16", settings={"n": 64})
    assert compiled.signature["x_ptr"] == "*fp16"
    assert compiled.arguments["x_ptr"] == ("*", "fp16", (64,))
    assert compiled.grid == (1, 1, 1)
    assert str(copy) in compiled.ptx  # not the bundled file of the same text


def test_siblings_packages_and_noise(tmp_path, capfd):
    body = (
        "import os, triton, triton.language as tl\n{0}\nprint('noise')\nos.system('echo more')\n"
        "@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, add(1.0))\n"
    )
    helper = "import triton\n@triton.jit\ndef add(x):\n    return {0}\n"
    for number in (3, 5):
        folder = tmp_path / f"plain{number}"
        folder.mkdir()
        (folder / "helpers.py").write_text(helper.format(float(number)))
        (folder / "mine.py").write_text(body.format("from helpers import add"))
        ttir = compile_kernel(f"{folder}/mine.py", signature="*fp32").ttir
        assert f"{number}.000000e+00" in ttir
        assert not (folder / "__pycache__").exists()
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helpers.py").write_text(helper.format(7.0))
    (package / "mine.py").write_text(body.format("from .helpers import add"))
    assert "7.000000e+00" in compile_kernel(f"{package}/mine.py:k", signature="*fp32").ttir
    assert str(tmp_path) not in sys.path
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "noise" in captured.err
    assert "more" in captured.err


def test_a_changed_file_is_compiled_anew(tmp_path):
    file = tmp_path / "k.py"
    text = (
        "import triton, triton.language as tl\n"
        "@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, {0})\n"
    )
    file.write_text(text.format("1.0"))
    first = compile_kernel(str(file), signature="*fp32")
    before = file.stat()
    file.write_text(text.format("2.0"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as long and as old as before
    assert "1.000000e+00" in first.ttir
    assert "2.000000e+00" in compile_kernel(str(file), signature="*fp32").ttir


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "keywords", "message"),
    [
        ("glu", {}, r"unknown kernel 'glu': did you mean gelu\?"),
        ("gelu", {"settings": {"N": 3}}, r"'N'"),
        ("gelu", {"dtype": "int8"}, "dtype"),
        ("gelu", {"num_warps": 3}, "num_warps is 3, expected a power of two"),
        ("gelu", {"num_warps": 64}, "num_warps is 64"),
        ("gelu", {"num_stages": 0}, "num_stages is 0"),
        ("gelu", {"num_stages": 10**30}, "num_stages is 1000.*at most 2147483647"),
        ("gelu", {"signature": "*fp32"}, "bundled kernels have a signature of their own"),
        (f"{ROOT}/kernels/gelu.py", {"signature": "n=i32:1"}, "the signature says 1"),
        (f"{ROOT}/kernels/gelu.py", {"signature": "x_ptr=i32"}, "is a pointer"),
        (f"{USER}:norm_kernal", {}, "no kernel 'norm_kernal'.*did you mean norm_kernel"),
        (f"{USER}:EPS", {}, r"is not a @triton.jit function"),
        (f"{USER}", {}, "has several kernels.*norm_kernel, copy_kernel"),
        (f"{USER}:norm_kernel", {"settings": {"BLOC": 1}}, "'BLOC': did you mean BLOCK"),
        (f"{USER}:norm_kernel", {"dtype": "fp16"}, "give the types with a signature"),
        (
            f"{USER}:norm_kernel",
            {"signature": "*fp32, *fp32, i32:16, fp32, 128", "settings": {"n": 8}},
            "'n' is set to 8, and the signature says divisible by 16",
        ),
        (
            f"{USER}:norm_kernel",
            {"signature": "*fp32", "settings": {"x_ptr": 8}},
            "'x_ptr' is a pointer",
        ),
    ],
    ids=lambda value: value.replace(f"{ROOT}/", "") if isinstance(value, str) else None,
)
def test_usage_errors(target, keywords, message):
    with pytest.raises(UsageError, match=message):
        compile_kernel(target, **keywords)


@pytest.mark.parametrize(
    ("kernel", "keywords", "line", "message"),
    [
        ("bad_kernel", {"signature": "*fp32, 100"}, "x + tl.arange(0, SIZE)", "power of 2"),
        ("dot_kernel", {"signature": "*fp16, *fp32, 16, 16, 8"}, "tl.dot(a, b)", "K >= 16"),
        ("typo_kernel", {"signature": "*fp32"}, "undefined_name + 1", "undefined_name"),
        ("asm_kernel", {"signature": "*i32, 128"}, "inline_asm", "ptxas: Not a name .*'bogus'"),
        ("return_kernel", {"signature": "*fp32"}, "return tl.load(x_ptr)", "returns a value"),
        ("print_kernel", {"signature": "*fp32, 64"}, "static_assert", "SIZE is too large"),
        (
            "dot_kernel",
            {"signature": "*fp16, *fp32, 16, 16, 2048", "arch": "sm_86"},
            "def dot_kernel",
            "out of resource: shared memory: a block needs 131072 bytes, sm_86 has 101376",
        ),
    ],
)
def test_impossible_kernels_point_at_the_users_line(kernel, keywords, line, message, capfd):
    with pytest.raises(InputError, match=message) as caught:
        user(kernel, **keywords)
    spot = caught.value.spot
    assert spot is not None
    assert spot.file.endswith("user_kernels.py")
    text = USER.read_text().splitlines()[spot.line - 1]
    assert spot.text == text
    assert line in text
    assert "\n" not in caught.value.message
    assert caught.value.message.startswith(("File", "Traceback")) is False
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_what_a_kernel_prints_at_compile_time_goes_to_standard_error(capfd):
    user("print_kernel", signature="*fp32, 32")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "size is 32" in captured.err


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("def f(:\n", InputError, r"mine.py:1:7: SyntaxError: invalid syntax"),
        ("x = 1\ny = x / 0\n", InputError, r"mine.py:2:5: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", InputError, r"mine.py:1:1: .*SystemExit: 3"),
        ("import exit_of_sibling\n", InputError, r"exit_of_sibling.py:1:1: .*SystemExit: 3"),
        ("import no_such_pack.x\n", MissingToolError, r"mine.py:1: .*pip install no_such_pack"),
        ("from triton import nothing_here\n", InputError, r"mine.py:1:1: ImportError"),
        ("x = '\0'\n", InputError, r"null byte"),
        ("pass\n", InputError, r"no @triton.jit function"),
    ],
)
def test_files_that_cannot_be_run(tmp_path, text, kind, message):
    (tmp_path / "exit_of_sibling.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(kind, match=message):
        compile_kernel(f"{tmp_path}/mine.py:k")


def test_missing_files_and_interrupts(tmp_path):
    with pytest.raises(InputError, match=r"nope.py: No such file"):
        compile_kernel(f"{tmp_path}/nope.py:k")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(InputError, match="directory"):
        compile_kernel(f"{tmp_path}/folder.py:k")
    (tmp_path / "stop.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        compile_kernel(f"{tmp_path}/stop.py:k")


# --- other processes -----------------------------------------------------------------------------


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


def test_importing_is_cheap():
    done = python(
        "import sys, json, kanalyze.frontend.compile\n"
        "print(json.dumps([m for m in ('triton','torch','networkx','lark') if m in sys.modules]))"
    )
    assert json.loads(done.stdout) == []


def test_interpreter_mode_of_triton_is_put_aside():
    code = (
        "import os\nfrom kanalyze.frontend.compile import compile_kernel\n"
        "print(compile_kernel('gelu').name, os.environ['TRITON_INTERPRET'])"
    )
    done = python(code, TRITON_INTERPRET="1")
    assert (done.returncode, done.stdout) == (0, "gelu_kernel 1\n"), done.stderr
    done = python("import triton\n" + code, TRITON_INTERPRET="1")
    assert "UsageError: Triton was imported with TRITON_INTERPRET=1" in done.stderr


def test_without_triton(tmp_path):
    code = (
        "import sys\nsys.modules['triton'] = None\n"
        "from kanalyze.frontend.compile import compile_kernel\ncompile_kernel('gelu')"
    )
    done = python(code)
    assert "MissingToolError" in done.stderr
    assert "pip install" in done.stderr


def test_environment_is_put_back(monkeypatch):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    compile_kernel("gelu")
    assert "TRITON_CACHE_DIR" not in os.environ
    assert (cache.cache_dir() / "triton").is_dir()


def test_tritons_own_cache_folder_is_respected(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "own"))
    assert user("norm_kernel", signature="*fp32, *fp32, i32, fp32, 64").name == "norm_kernel"
    assert any((tmp_path / "own").iterdir())
    # the same text under another path, from the same cache: its own path is shown
    copy = tmp_path / "copy.py"
    copy.write_text(USER.read_text())
    again = compile_kernel(f"{copy}:norm_kernel", signature="*fp32, *fp32, i32, fp32, 64")
    assert str(copy) in again.ptx


def test_a_changed_sibling_is_read_anew(tmp_path):
    file, helper = tmp_path / "k.py", tmp_path / "some_helper.py"
    file.write_text(
        "import triton, triton.language as tl\nfrom some_helper import VALUE\n"
        "@triton.jit\ndef k(x_ptr, V: tl.constexpr = VALUE):\n    tl.store(x_ptr, V)\n"
    )
    for value in ("3.0", "5.0"):
        helper.write_text(f"VALUE = {value}\n")
        ttir = compile_kernel(str(file), signature="*fp32").ttir
        assert f"{value}00000e+00" in ttir


def test_a_type_as_constexpr(tmp_path):
    file = tmp_path / "k.py"
    file.write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\ndef k(x_ptr, T: tl.constexpr):\n"
        "    tl.static_assert(T == tl.float16)\n    tl.store(x_ptr, 1.0)\n"
    )
    assert compile_kernel(str(file), signature="*fp32, T=tl.float16").name == "k"
    with pytest.raises(InputError, match=r"k\.py:4:5"):
        compile_kernel(str(file), signature="*fp32, T=tl.bfloat16")


def test_all_errors_are_ours():
    for target in ("", ":", "a:b", ".py", "x.py:", "gelu:gelu_kernel", "/", "\0.py:k"):
        with pytest.raises(KanalyzeError):
            compile_kernel(target)


def test_device_assert_is_kept_where_the_decorator_says_so():
    compiled = user("asserting", signature="*fp32,i32,64")
    assert "__assertfail" in compiled.ptx


def test_recursion_and_names_that_triton_does_not_take(tmp_path):
    file = tmp_path / "k.py"
    file.write_text(
        "import triton, triton.language as tl\n"
        "@triton.jit\ndef ké(x):\n    tl.store(x, 1.0)\n"
        "@triton.jit\ndef again(x):\n    again(x)\n"
        "@triton.jit\ndef one(x):\n    two(x)\n"
        "@triton.jit\ndef two(x):\n    one(x)\n"
    )
    for name, line, message in (
        ("ké", 3, "^'ké' is not a name for a kernel: Triton takes ASCII letters"),
        ("again", 7, "^'again' calls itself"),
        ("one", 10, "^'two' calls itself"),
    ):
        with pytest.raises(InputError) as caught:
            compile_kernel(f"{file}:{name}", signature="*fp32")
        assert re.match(message, caught.value.message)
        assert caught.value.spot is not None
        assert caught.value.spot.line == line


@pytest.mark.parametrize("junk", [b"", b"\xff\xfe\0junk", b"text", b"{}"])
@pytest.mark.parametrize("stage", ["json", "source", "ttir", "ttgir", "llir", "ptx", "cubin"])
def test_a_damaged_file_of_tritons_cache_is_made_anew(stage, junk, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path))
    whole = compile_kernel("gelu")
    [file] = tmp_path.glob(f"triton/*/*/gelu_kernel.{stage}")
    was = file.read_bytes()
    file.write_bytes(junk)
    again = compile_kernel("gelu")
    assert (again.ttir, again.ttgir, again.llir) == (whole.ttir, whole.ttgir, whole.llir)
    assert (again.ptx, again.cubin) == (whole.ptx, whole.cubin)
    assert stage == "json" or file.read_bytes() == was
    assert compile_kernel("gelu").ptx == whole.ptx
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_folder_that_triton_cannot_keep_its_cache_in_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/dev/null")
    with pytest.raises(InputError, match=r"^/dev/null: .*Not a directory.*TRITON_CACHE_DIR"):
        compile_kernel("gelu")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/proc/none")
    with pytest.raises(InputError, match=r"^/proc/none: .*TRITON_CACHE_DIR"):
        compile_kernel("gelu")


def test_control_characters_that_a_file_prints_are_escaped(tmp_path, capfd):
    file = tmp_path / "k.py"
    file.write_text(
        "import logging, sys, triton, triton.language as tl\n"
        "print('printed \\x1b[31m')\nsys.stderr.writelines(['line \\x1b[32m\\n'])\n"
        "logging.getLogger('of_this_test').warning('logged \\x1b[33m')\n"
        "@triton.jit\ndef k(x):\n    tl.static_print('static \\x1b[34m')\n    tl.store(x, 1.0)\n"
    )
    compile_kernel(str(file), signature="*fp32")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "\x1b" not in captured.err
    for text in ("printed \\x1b[31m\n", "line \\x1b[32m\n", "static \\x1b[34m\n"):
        assert text in captured.err


def test_a_variable_that_names_another_program_than_ptxas(monkeypatch):
    name = ptxas.ptxas_for(90).upper().replace("-", "_")
    for path in ("/bin/false", "/bin/echo", str(tools.find("nvdisasm"))):
        monkeypatch.setenv(f"TRITON_{name}_PATH", path)
        with pytest.raises(MissingToolError, match=rf"^TRITON_{name}_PATH is {path}, which is not"):
            compile_kernel("gelu")
