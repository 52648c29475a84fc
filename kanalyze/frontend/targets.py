"""What a TARGET is: the subjects that a name, a file or an object stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kanalyze.errors import InputError, KanalyzeError, UsageError, nearest
from kanalyze.frontend import cuda, files
from kanalyze.frontend.argument import Argument
from kanalyze.frontend.compile import Compiled, compile_kernel, normalise_arch
from kanalyze.frontend.subject import Settings, Subject
from kanalyze.launch.record import Launch
from kanalyze.ptx import ir
from kanalyze.ptx.parse import parse_ptx_modules
from kanalyze.sass import cubin as cubins
from kanalyze.sass.code import code_of

PTX_SUFFIX = ".ptx"


def subjects_of(
    target: str | Path | ir.Module | Compiled, options: Settings, launch: Launch | None = None
) -> Iterator[Subject]:
    """Yield the modules that a target stands for (see `analyze`)."""
    if isinstance(target, ir.Module):
        yield Subject(target, target.name, launch=launch)
        return
    if isinstance(target, str | Path):
        of_file = _of_file(str(target), options, launch)
        if of_file is not None:
            yield from of_file
            return
    if not isinstance(target, Compiled):
        target = compiled_for(str(target), options)
    name = f"{target.name}.ptx"
    for module in parse_ptx_modules(target.ptx, name):
        yield Subject(module, name, target, launch, target.notes)


def compiled_for(target: str, options: Settings) -> Compiled:
    """Compile a target as its options say; errors: see `kanalyze.compile_kernel`."""
    return compile_kernel(
        target,
        arch=options.arch,
        dtype=options.dtype,
        settings=options.settings,
        num_warps=options.num_warps,
        num_stages=options.num_stages,
        signature=options.signature,
    )


def _of_file(target: str, options: Settings, launch: Launch | None) -> Iterator[Subject] | None:
    """The subjects of a file that needs no Triton; None if the target is no such file."""
    if target.endswith(PTX_SUFFIX):
        return _of_ptx(Path(target), launch)
    source = cuda.split(target)
    if source is not None:
        return _of_cuda(Path(source[0]), source[1], options, launch)
    if target.endswith(cubins.SUFFIXES):
        return of_machine_code(Path(target), launch)
    return None


def read_ptx(path: Path) -> tuple[ir.Module, ...]:
    """Read the PTX modules in a file.

    Raises:
        InputError: the file cannot be read, or holds no PTX.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), file=str(path)) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse_ptx_modules(text, str(path))
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits and the like
        raise InputError(f"the PTX cannot be read: {error}", file=str(path)) from error


def _of_ptx(path: Path, launch: Launch | None) -> Iterator[Subject]:
    beside = files.beside(path)
    cubin = None
    notes = beside.notes
    if beside.cubin is not None:
        try:
            (cubin,) = cubins.read_file(beside.cubin).cubins
        except (KanalyzeError, ValueError) as error:
            notes += (f"the cubin beside it is left out: {error}",)
    named = tuple(Argument(p.name, p.type, p.facts) for p in beside.parameters)
    arguments = {beside.kernel: named} if beside.kernel and named else {}
    for module in read_ptx(path):
        yield Subject(module, str(path), None, launch, notes, arguments, beside.shared_bytes, cubin)


def of_machine_code(path: Path, launch: Launch | None = None) -> Iterator[Subject]:
    """Yield what stands in a cubin, a fat binary or an executable: PTX with its cubin, or either.

    Raises:
        InputError: it cannot be read, or holds no device code.
        MissingToolError: there is no PTX in it, and no tool to read its machine code with.
    """
    contents = cubins.read_file(path)
    modules = [m for text in contents.ptx for m in parse_ptx_modules(text, str(path))]
    for cubin in contents.cubins:
        note = "PTX from the cubin's debug section, which keeps no .loc lines"
        found: tuple[ir.Module, ...] = ()
        if cubin.ptx is not None:
            found = parse_ptx_modules(cubin.ptx, str(path))
        else:
            fitting = [m for m in modules if _fits(m, cubin)][:1]
            modules = [m for m in modules if m not in fitting]
            found, note = tuple(fitting), "PTX embedded in the file"
        if not any(f.body is not None for m in found for f in m.entries):
            code_of(cubin)  # says now that it cannot be read
            found, note = (
                (ir.Module(str(path), None, (), None, (), (), {}, (), ""),),
                "machine code alone",
            )
        known = {f.name for m in found for f in m.entries if f.body is not None}
        bare = tuple(name for name in cubin.kernels if name not in known)
        for module in found:
            last = bare if module is found[-1] else ()
            yield Subject(
                module, str(path), None, launch, (note,), cubin=cubin, given=True, bare=last
            )
    for module in modules:
        yield Subject(module, str(path), launch=launch, notes=("PTX embedded in the file",))


def _fits(module: ir.Module, cubin: cubins.Cubin) -> bool:
    """Whether a cubin can be what was made of a module: the same kernels, the same target."""
    names = {f.name for f in module.entries if f.body is not None}
    target = (module.target or ("",))[0].removeprefix("sm_").rstrip("af")
    return bool(names) and names <= set(cubin.kernels) and target == str(cubin.capability)


def _of_cuda(
    path: Path, kernel: str | None, options: Settings, launch: Launch | None
) -> Iterator[Subject]:
    normalise_arch(options.arch)
    compiled = cuda.compile_file(path, options.arch)
    name = f"{path.stem}{PTX_SUFFIX}"
    source = path.read_text("utf-8", "replace")
    note = f"compiled from {path} for {options.arch} by {compiled.tool}"
    for module in parse_ptx_modules(compiled.ptx, name):
        known = {f.name: cuda.source_name(f.name) for f in module.entries}
        if kernel is not None:
            if kernel not in (*known, *known.values()):
                raise UsageError(
                    f"{path} has no kernel '{kernel}': {nearest(kernel, known.values())}"
                )
            module = replace(
                module,
                functions=tuple(
                    f
                    for f in module.functions
                    if f.kind != "entry" or kernel in (f.name, known[f.name])
                ),
            )
        arguments = {}
        for function in module.entries:
            listed = cuda.parameters(source, known[function.name])
            if len(listed) == len(function.parameters):
                arguments[function.name] = tuple(Argument(n, kind) for n, kind in listed)
        yield Subject(module, name, None, launch, (note,), arguments)
