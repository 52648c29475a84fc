"""The adapter to Triton: the only file that imports it, and only inside functions.

Everything here works without a GPU or a driver. Written against the interfaces of Triton 3.5 to
3.9: ``triton.compile``, ``ASTSource``, ``GPUTarget``, ``triton.knobs``, and the attributes of
``JITFunction``, ``Autotuner`` and ``Heuristics``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from kanalyze import cache
from kanalyze.errors import (
    InputError,
    KanalyzeError,
    MissingToolError,
    SourceSpot,
    UsageError,
    nearest,
)
from kanalyze.frontend import user_file
from kanalyze.frontend.specialize import Parameter
from kanalyze.toolchain import tools

_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """A ``@triton.jit`` function with what its decorators add.

    Attributes:
        function: the ``JITFunction``.
        parameters: its parameters in order.
        config: keyword arguments of the first autotune configuration.
        options: compilation options of that configuration (``num_warps``, …).
        configs: how many configurations there are, 0 without ``@triton.autotune``.
        heuristics: parameter → function of the known arguments.
        line: 1-based line of its ``def``.
    """

    function: Any
    name: str
    file: Path
    line: int
    parameters: tuple[Parameter, ...]
    config: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    configs: int = 0
    heuristics: dict[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)

    def spot(self) -> SourceSpot:
        """Return the place of the kernel's ``def``."""
        text = user_file.line_of(self.file, self.line)
        column = len(text) - len(text.lstrip()) + 1
        return SourceSpot(user_file.shown(self.file), self.line, column, text)

    def column_base(self) -> int:
        """Return the number of the first column in Triton's locations: 1, or 0 up to 3.6."""
        return 1 if hasattr(self.function, "def_file_col_number") else 0


def import_triton() -> Any:
    """Import triton, with ``TRITON_INTERPRET`` out of the way.

    Raises:
        MissingToolError: it is not installed, or cannot be imported on this machine.
        UsageError: it was imported earlier in its interpreter mode, which cannot compile.
    """
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        import triton
        import triton.language.standard as standard
        from triton.runtime.jit import JITFunction
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "triton":
            raise MissingToolError(
                "Triton is not installed (it exists for Linux): pip install triton"
            ) from None
        raise MissingToolError(
            f"Triton cannot be imported ({user_file.one_line(error)}): "
            "pip install --force-reinstall triton"
        ) from error
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret
    if not isinstance(standard.sum, JITFunction):
        raise UsageError(
            "Triton was imported with TRITON_INTERPRET=1 in this process and cannot compile; "
            "unset TRITON_INTERPRET"
        )
    return triton


@contextlib.contextmanager
def environment(place: str) -> Iterator[None]:
    """Set Triton's cache folder and compiling mode for a while, and put them back.

    Triton's cache key does not hold the path of a kernel's file, while its PTX does (``.file``), so
    each path has a folder of its own: a copied file is never shown under the other's name.

    Args:
        place: what names the folder below the cache (the kernel's path).
    """
    import_triton()
    from triton import knobs

    with _lock, contextlib.ExitStack() as stack:
        stack.enter_context(knobs.runtime.scope())
        stack.enter_context(knobs.compilation.scope())
        stack.enter_context(knobs.cache.scope())
        knobs.runtime.interpret = False
        knobs.compilation.store_binary_only = False
        if not os.environ.get("TRITON_CACHE_DIR"):
            folder = cache.triton_dir()
            if folder is None:
                temporary = tempfile.TemporaryDirectory(prefix="kanalyze-triton-")
                folder = Path(stack.enter_context(temporary))
            triton_folder = str(Path(sys.modules["triton"].__file__ or "").parent)
            knobs.cache.dir = str(folder / cache.key(place, triton_folder)[:16])
        yield


def kernels_of(module: ModuleType) -> dict[str, Any]:
    """Return the kernels (decorated functions) among a module's globals, in order."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    kinds = (JITFunction, Autotuner, Heuristics)
    return {name: v for name, v in user_file.own_names(module).items() if isinstance(v, kinds)}


def entries_of(module: ModuleType, path: Path) -> list[str]:
    """Return the kernels defined in a file that no other kernel of it calls."""
    own = {}
    for name, value in kernels_of(module).items():
        code = _innermost(value).fn.__code__
        if Path(code.co_filename) == path:
            own[name] = code
    called = {name for code in own.values() for name in code.co_names}
    return [name for name in own if name not in called] or list(own)


def _innermost(value: Any) -> Any:
    while hasattr(value, "fn") and not hasattr(value, "params"):
        value = value.fn
    return value


def unwrap(name: str, value: Any) -> TritonKernel:
    """Return a kernel with what ``@triton.autotune`` and ``@triton.heuristics`` add to it."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    config: dict[str, Any] = {}
    options: dict[str, Any] = {}
    heuristics: dict[str, Callable[[dict[str, Any]], Any]] = {}
    configs = 0
    while not hasattr(value, "params"):
        if isinstance(value, Autotuner):
            first = value.configs[0]
            configs = len(value.configs)
            config = dict(first.kwargs)
            for option in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
                if (chosen := getattr(first, option, None)) is not None:
                    options[option] = chosen
        elif isinstance(value, Heuristics):
            heuristics |= value.values
        value = value.fn
    if getattr(value, "is_gluon", lambda: False)():
        raise UsageError(f"{name} is a Gluon kernel; only @triton.jit kernels are supported")
    line = value.starting_line_number
    for index, text in enumerate(value.raw_src):
        if text.strip().startswith("def "):
            line += index
            break
    parameters = tuple(
        Parameter(
            name=p.name,
            constexpr=p.is_constexpr,
            specialise=not p.do_not_specialize,
            specialise_alignment=not p.do_not_specialize_on_alignment,
            const=p.is_const,
            type=p.annotation_type,
            has_default=p.has_default,
            default=p.default if p.has_default else None,
        )
        for p in value.params
    )
    file = Path(value.fn.__code__.co_filename)
    return TritonKernel(
        value, name, file, line, parameters, config, options, configs, heuristics
    )  # fmt: skip


def kernel_of(value: Any) -> TritonKernel:
    """Return the kernel that a ``@triton.jit`` object is.

    Raises:
        UsageError: it is another object.
    """
    import_triton()
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    if not isinstance(value, JITFunction | Autotuner | Heuristics):
        raise UsageError(f"{value!r} is not a @triton.jit function")
    return unwrap(_innermost(value).fn.__name__, value)


def pick(module: ModuleType, path: Path, function: str | None) -> TritonKernel:
    """Return a module's kernel of that name, or its only one for None.

    Raises:
        UsageError: there is no such kernel, or several to choose from.
        InputError: there is none at all.
    """
    kernels = kernels_of(module)
    if not kernels:
        raise InputError("found no @triton.jit function, expected at least one", file=str(path))
    if function is None:
        entries = entries_of(module, path)
        if len(entries) != 1:
            names = ", ".join(entries or kernels)
            raise UsageError(f"{path.name} has several kernels, name one as FILE:KERNEL: {names}")
        function = entries[0]
    if function not in kernels:
        if hasattr(module, function):
            raise UsageError(
                f"'{function}' in {path.name} is no @triton.jit function: {nearest('', kernels)}"
            )
        raise UsageError(f"no kernel '{function}' in {path.name}: {nearest(function, kernels)}")
    return unwrap(function, kernels[function])


@dataclass(frozen=True, slots=True)
class Output:
    """What one compilation gave: texts and binary by stage, Triton's metadata, its warnings."""

    asm: dict[str, Any]
    metadata: dict[str, Any]
    warnings: tuple[str, ...]


def compile_source(
    kernel: TritonKernel,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    divisible: Mapping[str, bool],
    capability: int,
    options: Mapping[str, Any],
) -> Output:
    """Run Triton's compiler for a CUDA capability (90 for sm_90).

    Raises:
        InputError: Triton or ptxas rejects the kernel; the spot lies in the user's file.
        MissingToolError: this Triton's ptxas does not know the architecture, or is another program.
    """
    triton = import_triton()
    tools.version(tools.find(tools.ptxas_for(capability)))
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [parameter.name for parameter in kernel.parameters]
    constants = {(names.index(name),): _constant(value) for name, value in constexprs.items()}
    attributes = {
        (names.index(name),): [["tt.divisibility", 16]] for name, yes in divisible.items() if yes
    }
    debug = bool(getattr(kernel.function, "debug", False))  # keeps tl.device_assert
    given = dict(options) | ({"debug": True} if debug else {})
    said = _Said()
    try:
        with _captured(said):
            for attempt in (1, 2):
                source = ASTSource(
                    fn=kernel.function,
                    signature=dict(signature),
                    constexprs=constants,
                    attrs=attributes,
                )
                try:
                    done = triton.compile(
                        source, target=GPUTarget("cuda", capability, 32), options=given
                    )
                    asm = dict(done.asm)
                    sums = "triton-" + cache.key(str(knobs.cache.dir), str(kernel.file), done.hash)
                    if attempt == 2 or (_is_of(asm, kernel.file) and _is_whole(asm, sums)):
                        break
                    # Damaged, or kept from a file of the same text under another path, which is
                    # not to be shown.
                except Exception as error:
                    if not _while_reading(error) or attempt == 2:
                        raise
                knobs.compilation.always_compile = True
            cache.store(sums, _sum(asm))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _translated(error, said, kernel, capability) from error
    if said.output:
        print(said.output, end="", file=sys.stderr)  # tl.static_print
    metadata = done.metadata._asdict()
    metadata["name"] = done.name
    metadata["loc_column_base"] = kernel.column_base()
    return Output(asm, metadata, tuple(user_file.diagnostics(said.errors, "warning")))


def _constant(value: object) -> object:
    """Return a constexpr's value; a text such as ``tl.float16`` stands for the type."""
    if isinstance(value, str) and value.startswith("tl."):
        import triton.language as tl

        found = getattr(tl, value[3:], None)
        if isinstance(found, tl.dtype):
            return found
    return value


def _is_of(asm: Mapping[str, Any], file: Path) -> bool:
    ptx = asm.get("ptx")
    if ptx is None or not re.search(r"^\s*\.target\b", ptx, re.M):
        return False
    return not re.search(r"^\s*\.file\b", ptx, re.M) or str(file) in ptx


def _is_whole(asm: Mapping[str, Any], name: str) -> bool:
    """Whether the stages are still those that our cache holds a sum of (or it holds none)."""
    return cache.load(name) in (None, _sum(asm))


def _sum(asm: Mapping[str, Any]) -> bytes:
    parts = [part for stage in sorted(asm) for part in (stage, asm[stage])]
    return cache.key(*parts).encode()


def _while_reading(error: BaseException) -> bool:
    """Whether an exception arose where Triton reads the files of a kernel that it kept."""
    from triton.compiler.compiler import CompiledKernel

    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is CompiledKernel.__init__.__code__:
            frame.f_locals["self"].module = None  # half made: else its __del__ complains
            return True
    return False


def _in_cache(error: BaseException) -> bool:
    """Whether an exception arose in Triton's cache of files."""
    from triton.runtime import cache as of_triton

    return any(
        frame.f_code.co_filename == of_triton.__file__
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


@dataclass
class _Said:
    output: str = ""
    errors: str = ""


@contextlib.contextmanager
def _captured(said: _Said) -> Iterator[None]:
    """Keep what Python prints and what C++ writes to file descriptor 2 off the terminal."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(tempfile.TemporaryFile())
        try:
            saved = os.dup(2)
        except OSError:  # no standard error at all
            saved = None
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(errors))
        try:
            if saved is not None:
                os.dup2(sink.fileno(), 2)
            yield
        finally:
            if saved is not None:
                os.dup2(saved, 2)
                os.close(saved)
            sink.seek(0)
            said.output = output.getvalue()
            said.errors = sink.read().decode("utf-8", "replace") + errors.getvalue()


# --- errors --------------------------------------------------------------------------------------


def _translated(
    error: BaseException, said: _Said, kernel: TritonKernel, capability: int
) -> KanalyzeError:
    from triton.compiler.errors import CompilationError

    if isinstance(error, KanalyzeError):
        return error
    if isinstance(error, OSError) and (_in_cache(error) or _while_reading(error)):
        return _unusable_cache(error)
    if isinstance(error, CompilationError):
        return _front_end(error, kernel)
    text = str(error)
    if type(error).__name__ == "PTXASError" or "ptxas" in text:
        return _ptxas(text, said.output, kernel, capability)
    for message in user_file.diagnostics(said.errors, "error"):
        place = re.match(r"(.+?):(\d+):(\d+): (.+)", message)
        if place is None:
            return InputError(message, kernel.spot())
        file, line = Path(place[1]), int(place[2])
        column = int(place[3]) + 1 - kernel.column_base()
        spot = SourceSpot(user_file.shown(file), line, column, user_file.line_of(file, line))
        return InputError(place[4], spot if _in_user_code(file) else kernel.spot())
    return InputError(f"Triton: {user_file.short(user_file.one_line(error))}", kernel.spot())


def _unusable_cache(error: OSError) -> InputError:
    from triton import knobs

    own = "TRITON_CACHE_DIR" if os.environ.get("TRITON_CACHE_DIR") else "KANALYZE_CACHE_DIR"
    return InputError(
        f"Triton cannot keep its cache in this folder ({error.strerror or error}): "
        f"set {own} to one that can be written to",
        file=str(knobs.cache.dir),
    )


def _in_user_code(file: Path) -> bool:
    triton_folder = Path(sys.modules["triton"].__file__ or "").parent
    return not file.is_relative_to(triton_folder) and file.exists()


def _front_end(error: BaseException, kernel: TritonKernel) -> InputError:
    """Translate a CompilationError: place of the innermost user's line, the innermost reason."""
    spot, reason = kernel.spot(), ""
    link: BaseException | None = error
    while link is not None:
        node, source = getattr(link, "node", None), getattr(link, "src", None)
        if source is not None and hasattr(node, "lineno"):
            spot = _spot_in(source, node, kernel) or spot
        own = getattr(link, "error_message", None) if node is not None else user_file.one_line(link)
        reason = own or (reason if node is not None else type(link).__name__) or reason
        link = link.__cause__
    reason = user_file.short(reason or str(error))
    # The symbol of a function whose code is still being made, as Triton 3.5 to 3.9 look it up.
    symbol = re.match(r"KeyError\('(.+)'\)", reason)
    again = [f.__name__ for f in _jitted(kernel) if symbol and f".{f.__name__}__" in symbol[1]]
    if again:
        reason = f"'{again[0]}' calls itself (recursion), which Triton cannot compile"
    elif found := re.match(r"invalid function identifier: (\w+)", reason):
        reason = f"'{found[1]}' is no name for a kernel: Triton takes ASCII letters, digits and _"
    return InputError(reason or type(error).__name__, spot)


def _spot_in(source: str, node: Any, kernel: TritonKernel) -> SourceSpot | None:
    """Return the place of an AST node of a jitted function, if that is in the user's files."""
    for function in _jitted(kernel):
        if function.src != source:
            continue
        file = Path(function.fn.__code__.co_filename)
        if not _in_user_code(file):
            return None
        line = function.starting_line_number
        indent = 0
        for index, text in enumerate(function.raw_src):
            if text.strip().startswith("def "):
                line, indent = line + index, len(text) - len(text.lstrip())
                break
        line += node.lineno - 1
        text = user_file.line_of(file, line)
        return SourceSpot(user_file.shown(file), line, node.col_offset + indent + 1, text)
    return None


def _jitted(kernel: TritonKernel) -> list[Any]:
    """Return the kernel's function and every jitted function reachable through its globals."""
    found: list[Any] = []
    queue = [kernel.function]
    while queue:
        function = queue.pop()
        if any(function is other for other in found):
            continue
        found.append(function)
        scope = function.fn.__globals__
        for name in function.fn.__code__.co_names:
            value = scope.get(name)
            candidates = vars(value).values() if isinstance(value, ModuleType) else [value]
            for candidate in candidates:
                candidate = _innermost(candidate)
                if hasattr(candidate, "raw_src") and _in_user_code(
                    Path(candidate.fn.__code__.co_filename)
                ):
                    queue.append(candidate)
    return found


def _ptxas(text: str, printed: str, kernel: TritonKernel, capability: int) -> KanalyzeError:
    """Translate ptxas's complaint; the PTX that Triton printed leads to the user's line."""
    found = re.findall(r"^ptxas\S*[^\n]*?\b(?:error|fatal)\s*:\s*(.+)$", text, re.MULTILINE)
    complaint = found[0].strip() if found else user_file.short(text)
    if "'gpu-name'" in complaint or "Unsupported .version" in complaint:
        version = getattr(sys.modules["triton"], "__version__", "")
        return MissingToolError(
            f"the ptxas of Triton {version} does not know sm_{capability} ({complaint}): "
            "pip install --upgrade triton"
        )
    number = re.search(r"\.ptx, line (\d+);", text)
    _, header, body = printed.partition("//\n// Generated by LLVM")
    base = kernel.column_base()
    spot = _spot_of_ptx(header + body, int(number[1]), base) if number else None
    return InputError(f"ptxas: {complaint}", spot or kernel.spot())


def _spot_of_ptx(ptx: str, number: int, base: int) -> SourceSpot | None:
    """Return the user's line that a line of PTX comes from: the last ``.loc`` before it.

    Inside inline assembly it is the last one before that begins: those inside drift.
    """
    files = {n: Path(name) for n, name in re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', ptx)}
    before = ptx.splitlines()[:number]
    for index in range(len(before) - 1, -1, -1):
        if "// end inline asm" in before[index]:
            break
        if "// begin inline asm" in before[index]:
            before = before[:index]
            break
    for text in reversed(before):
        if (found := re.search(_LOC, text)) is None:
            continue
        file, line = files.get(found[1]), int(found[2])
        column = int(found[3]) + 1 - base
        if file is not None and line and _in_user_code(file):
            text = user_file.line_of(file, line)
            return SourceSpot(user_file.shown(file), line, column or 1, text)
    return None


_LOC = r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
