"""From a TARGET to its subjects: the one place where commands and library say what a target is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kanalyze.errors import InputError, KanalyzeError, UsageError, nearest
from kanalyze.frontend import cuda, files
from kanalyze.frontend.argument import Argument
from kanalyze.frontend.compile import Compiled, JitFunction, compile_kernel, normalise_arch
from kanalyze.frontend.contents import Input, Kind, identify, inputs_of
from kanalyze.frontend.subject import Settings, Subject
from kanalyze.launch.record import Launch
from kanalyze.ptx import ir
from kanalyze.ptx.parse import parse_ptx_modules
from kanalyze.sass import cubin as cubins
from kanalyze.sass.code import code_of

Target = str | Path | ir.Module | Compiled | JitFunction | list[Subject]
"""A text as on the command line, what was read or compiled already, or a ``@triton.jit`` object."""


def resolve(
    target: Target, settings: Settings | None = None, launch: Launch | None = None
) -> list[Subject]:
    """Return the modules that a target stands for, told by what it holds.

    Args:
        target: a bundled kernel's name, ``file.py:kernel``, a file with PTX, CUDA C++ or machine
            code under any name (``FILE:KERNEL`` for one kernel of it), a folder, a pattern, ``-``
            for standard input, a module, a compiled kernel, a ``@triton.jit`` object, or subjects,
            which are returned as they are.
        settings: how what has to be compiled is compiled.
        launch: the launch of its kernel, as far as known.

    Raises:
        UsageError: an unknown kernel, or a setting that cannot be.
        InputError: it cannot be read or compiled, or holds no kernels; the message says what it is.
        MissingToolError: Triton or one of NVIDIA's tools is needed and missing.
    """
    settings = settings or Settings()
    if isinstance(target, str | Path):
        inputs = [identify(one) for one in inputs_of(str(target))]
        return [subject for one in inputs for subject in subjects_of(one, settings, launch)]
    if isinstance(target, ir.Module):
        return [Subject(target, target.name, launch=launch)]
    if isinstance(target, list):
        return target
    compiled = target if isinstance(target, Compiled) else compiled_for(target, settings, launch)
    return list(_of_compiled(compiled, launch))


def subjects_of(given: Input, settings: Settings, launch: Launch | None = None) -> list[Subject]:
    """Return the modules of one input; errors: see `resolve`."""
    if given.kind in (Kind.BUNDLED, Kind.PYTHON):
        kernel = f":{given.kernel}" if given.kernel else ""
        return list(_of_compiled(compiled_for(given.name + kernel, settings, launch), launch))
    if given.kind is Kind.MACHINE_CODE:
        subjects = list(_of_machine_code(given, launch))
    elif given.kind is Kind.CUDA:
        subjects = list(_of_cuda(given, settings, launch))
    else:
        subjects = list(_of_ptx(given, launch))
    return subjects if given.kernel is None else choose(subjects, [given.kernel], given.name)


def choose(subjects: Sequence[Subject], kernels: Sequence[str], where: str) -> list[Subject]:
    """Return the subjects with only the kernels named, by their symbols or their authors' names.

    Raises:
        UsageError: there is no such kernel.
    """
    known = [f.name for s in subjects for f in s.module.entries if f.body is not None]
    known += [name for s in subjects for name in s.bare]
    for name in kernels:
        if name not in known and name not in map(cuda.source_name, known):
            raise UsageError(
                f"there is no kernel '{name}' in {where}: "
                f"{nearest(name, dict.fromkeys(map(cuda.source_name, known)))}"
            )

    def wanted(name: str) -> bool:
        return name in kernels or cuda.source_name(name) in kernels

    chosen = []
    for subject in subjects:
        functions = tuple(
            f for f in subject.module.functions if f.kind != "entry" or wanted(f.name)
        )
        bare = tuple(name for name in subject.bare if wanted(name))
        if bare or any(f.kind == "entry" for f in functions):
            module = replace(subject.module, functions=functions)
            chosen.append(replace(subject, module=module, bare=bare))
    return chosen


def compiled_for(
    target: str | Path | JitFunction, settings: Settings, launch: Launch | None = None
) -> Compiled:
    """Compile a target as its settings and a record say; errors: see `kanalyze.compile_kernel`."""
    return compile_kernel(target, **vars(settings), launch=launch)


def _of_compiled(compiled: Compiled, launch: Launch | None) -> Iterator[Subject]:
    name = f"{compiled.name}.ptx"
    for module in parse_ptx_modules(compiled.ptx, name):
        yield Subject(module, name, compiled, launch, compiled.notes)


def _modules(text: str, name: str) -> tuple[ir.Module, ...]:
    try:
        return parse_ptx_modules(text, name)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits and the like
        raise InputError(f"the PTX cannot be read: {error}", file=name) from error


def _of_ptx(given: Input, launch: Launch | None) -> Iterator[Subject]:
    beside = files.beside(given.path) if given.path is not None else files.Beside()
    cubin = None
    notes = beside.notes
    if beside.cubin is not None:
        try:
            (cubin,) = cubins.read_file(beside.cubin).cubins
        except (KanalyzeError, ValueError) as error:
            notes += (f"the cubin beside it is left out: {error}",)
    named = tuple(Argument(p.name, p.type, p.facts) for p in beside.parameters)
    arguments = {beside.kernel: named} if beside.kernel and named else {}
    for module in _modules(given.text, given.name):
        yield Subject(
            module, given.name, None, launch, notes, arguments, beside.shared_bytes, cubin
        )


def _of_machine_code(given: Input, launch: Launch | None) -> Iterator[Subject]:
    """What stands in a cubin, a fat binary or an executable: PTX with its cubin, or either."""
    name = given.name
    contents = cubins.read(given.data, name)
    modules = [m for text in contents.ptx for m in parse_ptx_modules(text, name)]
    for cubin in contents.cubins:
        note = "PTX from the cubin's debug section, which keeps no .loc lines"
        own: tuple[ir.Module, ...] = ()
        if cubin.ptx is not None:
            own = parse_ptx_modules(cubin.ptx, name)
        else:
            fitting = [m for m in modules if _fits(m, cubin)][:1]
            modules = [m for m in modules if m not in fitting]
            own, note = tuple(fitting), "PTX embedded in the file"
        if not any(f.body is not None for m in own for f in m.entries):
            code_of(cubin)  # says now that it cannot be read
            own = (ir.Module(name, None, (), None, (), (), {}, (), ""),)
            note = "machine code alone"
        known = {f.name for m in own for f in m.entries if f.body is not None}
        bare = tuple(kernel for kernel in cubin.kernels if kernel not in known)
        for module in own:
            last = bare if module is own[-1] else ()
            yield Subject(module, name, None, launch, (note,), cubin=cubin, given=True, bare=last)
    for module in modules:
        yield Subject(module, name, launch=launch, notes=("PTX embedded in the file",))


def _fits(module: ir.Module, cubin: cubins.Cubin) -> bool:
    """Whether a cubin can be what was made of a module: the same kernels, the same target."""
    names = {f.name for f in module.entries if f.body is not None}
    target = (module.target or ("",))[0].removeprefix("sm_").rstrip("af")
    return bool(names) and names <= set(cubin.kernels) and target == str(cubin.capability)


def _of_cuda(given: Input, settings: Settings, launch: Launch | None) -> Iterator[Subject]:
    assert given.path is not None
    normalise_arch(settings.arch)
    compiled = cuda.compile_file(given.path, given.data, settings.arch)
    name = f"{given.path.stem}.ptx"
    note = f"compiled from {given.name} for {settings.arch} by {compiled.tool}"
    for module in parse_ptx_modules(compiled.ptx, name):
        arguments = {}
        for function in module.entries:
            listed = cuda.parameters(given.text, cuda.source_name(function.name))
            if len(listed) == len(function.parameters):
                arguments[function.name] = tuple(Argument(n, kind) for n, kind in listed)
        yield Subject(module, name, None, launch, (note,), arguments)
