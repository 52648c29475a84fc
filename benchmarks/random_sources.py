"""Random kernels, each with launches: CUDA C++, Triton, and PTX written as is. All from a seed.

Indices stay inside their arrays: those of CUDA C++ by ranges that are carried along, the others by
a mask or a comparison. What is loaded is stored again, so that no compiler drops it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

ELEMENTS = 1 << 14
"""Of every array."""
BYTES = ELEMENTS * 16


@dataclass(frozen=True)
class Argument:
    """A parameter: ``type`` as in a launch (``*fp32``, ``i32``); a struct has ``fields``."""

    name: str
    type: str
    align: int = 4
    fields: tuple[tuple[int, int], ...] = ()  # of a struct: offset, bytes


@dataclass(frozen=True)
class Shot:
    """One launch: ``shifts`` moves each pointer by so many times its alignment."""

    grid: tuple[int, int, int]
    numbers: dict[str, int]
    shifts: dict[str, int]


@dataclass
class Sample:
    """A kernel ``k``: its source, block, parameters and launches."""

    language: str
    seed: int
    source: str
    block: tuple[int, int, int]
    arguments: list[Argument]
    shots: list[Shot]
    signature: str = ""
    warps: int = 4


@dataclass(frozen=True)
class Number:
    """An expression and the range that it lies in."""

    text: str
    low: int
    high: int


TYPES = {"float": ("*fp32", 4), "double": ("*fp64", 8), "short": ("*i16", 2), "int": ("*i32", 4),
         "char": ("*i8", 1), "long long": ("*i64", 8)}  # fmt: skip
VECTORS = {"float2": 8, "float4": 16, "short2": 4, "char4": 4, "int2": 8, "double2": 16,
           "uchar2": 2}  # fmt: skip
BLOCKS = [(32, 1, 1), (64, 1, 1), (128, 1, 1), (96, 1, 1), (33, 1, 1), (100, 1, 1), (256, 1, 1),
          (32, 4, 1), (16, 8, 1), (8, 8, 1), (7, 9, 1), (4, 4, 4), (2, 3, 5), (48, 2, 1)]  # fmt: skip


class Cuda:
    """Writes one kernel of CUDA C++."""

    def __init__(self, seed: int):
        self.seed = seed
        self.r = random.Random(seed)
        self.block = self.r.choice(BLOCKS)
        self.grids = [tuple(self.r.choice(c) for c in ([1, 2, 3, 5], [1, 1, 2, 3], [1, 1, 1, 2]))
                      for _ in range(2)]  # fmt: skip
        self.scope: list[Number] = []
        self.pointers: dict[str, str] = {}  # text to element type
        self.functions: dict[str, str] = {}
        self.shared: list[str] = []
        self.count = 0
        self.depth = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # ------------------------------------------------------------ numbers

    def leaf(self) -> Number:
        r = self.r
        grid = [max(g[axis] for g in self.grids) for axis in range(3)]
        leaves = [Number("threadIdx.x", 0, self.block[0] - 1)] * 4
        leaves += [Number("blockIdx.x", 0, grid[0] - 1)] * 2
        leaves += [Number("s", 1, 40), Number("m", 1, 12), Number("n", 1, 4000)]
        leaves += [Number(f"blockDim.{a}", b, b) for a, b in zip("xy", self.block, strict=False)]
        for axis in (1, 2):
            leaves.append(Number(f"threadIdx.{'xyz'[axis]}", 0, self.block[axis] - 1))
            leaves.append(Number(f"blockIdx.{'xyz'[axis]}", 0, grid[axis] - 1))
        pick = r.choice(leaves + self.scope * 2)
        if r.random() < 0.2:
            value = r.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 100, 128, 1000])
            return Number(str(value), value, value)
        return Number(f"(int){pick.text}", pick.low, pick.high) if "." in pick.text else pick

    def number(self, depth: int = 3) -> Number:
        r = self.r
        if depth == 0 or r.random() < 0.15:
            return self.leaf()
        a = self.number(depth - 1)
        c = r.choice([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 32, 33, 64, 100])
        kind = r.choice(
            [
                "+",
                "+",
                "+",
                "-",
                "*",
                "*",
                "*",
                "/",
                "%",
                "&",
                ">>",
                "<<",
                "?",
                "min",
                "max",
                "short",
                "uns",
                "abs",
                "bits",
                "call",
                "v",
                "^",
                "|",
            ]
        )
        big = max(abs(a.low), abs(a.high))
        if kind in "+-" or kind in ("min", "max", "?"):
            b = self.number(depth - 1)
            if kind == "+":
                return self.held(Number(f"({a.text} + {b.text})", a.low + b.low, a.high + b.high))
            if kind == "-":
                return self.held(Number(f"({a.text} - {b.text})", a.low - b.high, a.high - b.low))
            low, high = min(a.low, b.low), max(a.high, b.high)
            if kind == "?":
                return Number(f"({self.condition()} ? {a.text} : {b.text})", low, high)
            return Number(f"{kind}({a.text}, {b.text})", low, high)
        if kind == "*":
            b = self.leaf() if r.random() < 0.4 else Number(str(c), c, c)
            ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
            return self.held(Number(f"({a.text} * {b.text})", min(ends), max(ends)))
        if kind == "/":
            return Number(f"({a.text} / {c})", min(a.low, 0) // c, max(a.high, 0) // c)
        if kind == "%":
            return Number(f"({a.text} % {c})", 1 - c if a.low < 0 else 0, c - 1)
        if kind == "&":
            mask = r.choice([1, 3, 7, 15, 31, 32, 0x3C, 127, 255, 1020])
            return Number(f"({a.text} & {mask})", 0, mask)
        if kind in "^|" and a.low >= 0:
            b = self.number(depth - 1)
            if b.low >= 0:
                top = (1 << max(a.high, b.high).bit_length()) - 1
                return Number(f"({a.text} {kind} {b.text})", 0, top)
        k = r.randrange(1, 5)
        if kind == ">>":
            return Number(f"({a.text} >> {k})", a.low >> k, a.high >> k)
        if kind == "<<" and a.low >= 0:
            return self.held(Number(f"({a.text} << {k})", a.low << k, a.high << k))
        if kind == "short":
            t, bits = r.choice([("short", 16), ("signed char", 8)])
            fits = big < 1 << (bits - 1)
            half = 1 << (bits - 1)
            return Number(f"(int)({t})({a.text})", a.low if fits else -half,
                          a.high if fits else half - 1)  # fmt: skip
        if kind == "uns":
            op = r.choice(["/", "%"])
            return Number(f"(int)((unsigned)({a.text}) {op} {c}u & 0xffffu)", 0, 0xFFFF)
        if kind == "abs":
            return Number(f"abs({a.text})", 0, big)
        if kind == "bits":
            f = r.choice(["__popc", "__clz", "__ffs"])
            return Number(f"{f}({a.text})", 0, 32)
        if kind == "v":
            b = self.number(depth - 1)
            f = r.choice(["__vadd2", "__vsub2", "__vadd4", "__vmaxu2", "__vmins2", "__umulhi",
                          "__vavgu4"])  # fmt: skip
            return Number(f"(int)({f}({a.text}, {b.text}) & 0x3ffu)", 0, 0x3FF)
        if kind == "call":
            name = f"g{c}"
            self.functions[name] = (
                f"__device__ __noinline__ int {name}(int a, int b) "
                f"{{ return a > b ? (a & 63) * {c} : (b & 31) + {c}; }}\n"
            )
            b = self.number(depth - 1)
            return Number(f"{name}({a.text}, {b.text})", 0, 64 * c)
        return a

    def held(self, a: Number) -> Number:
        """Small enough that nothing overflows."""
        return (
            a if max(abs(a.low), abs(a.high)) < 1 << 24 else Number(f"({a.text} & 0xfff)", 0, 4095)
        )

    def condition(self) -> str:
        r = self.r
        a, b = self.number(1), self.leaf()
        text = f"{a.text} {r.choice(['<', '<=', '>', '==', '!='])} {b.text}"
        if r.random() < 0.2:
            text = f"({text}) {r.choice(['&&', '||'])} ({self.number(1).text} % 3 != 0)"
        return f"({text})"

    def index(self, limit: int) -> Number:
        """A number from 0 up to the limit."""
        a = self.number()
        if a.low >= 0 and a.high < limit:
            return a
        if a.low >= 0 and self.r.random() < 0.4:
            m = self.r.choice([limit - 1, limit // 2 + 1, limit])
            return Number(f"({a.text} % {m})", 0, m - 1)
        mask = (1 << (limit.bit_length() - 1)) - 1
        return Number(f"({a.text} & {mask})", 0, mask)

    # ------------------------------------------------------------ statements

    def place(self, stored: bool) -> tuple[str, str]:
        """An element of an array and its type."""
        r = self.r
        text, kind = r.choice(list(self.pointers.items()))
        size = TYPES[kind][1]
        fits = [
            v for v in VECTORS if v.startswith(kind.split()[0]) or (v == "uchar2" and size == 1)
        ]
        if fits and r.random() < 0.3:
            vector = r.choice(fits)
            limit = ELEMENTS * size // VECTORS[vector]
            return (
                f"(({'' if stored else 'const '}{vector}*){text})[{self.index(limit).text}]",
                vector,
            )
        return f"{text}[{self.index(ELEMENTS).text}]", kind

    def used(self, variable: str, kind: str) -> str:
        if kind in VECTORS:
            return f"(double){variable}.x + (double){variable}.y"
        return f"(double){variable}"

    def load(self) -> str:
        text, kind = self.place(False)
        v = self.name("v")
        if kind not in VECTORS and self.r.random() < 0.15:
            base, _, index = text.partition("[")
            f = f"ld_{kind.replace(' ', '_')}"
            self.functions[f] = (f"__device__ __noinline__ {kind} {f}(const {kind}* p, int i) "
                                 "{ return p[i]; }\n")  # fmt: skip
            text = f"{f}({base}, {index[:-1]})"
        more = f" acc += {self.used(v, kind)};"
        if kind in ("int", "short") and self.r.random() < 0.08:
            p = self.r.choice(list(self.pointers))
            more += f" acc += (double){p}[{v} & 255];"
        return f"{kind} {v} = {text};{more}"

    def store(self) -> str:
        text, kind = self.place(True)
        if kind in VECTORS:
            v = self.name("w")
            part = "float" if kind[0] == "f" else "int"
            return f"{kind} {v} = {text}; {v}.x = ({part})acc; {v}.y = 1; {text} = {v};"
        return f"{text} = ({kind})acc;"

    def atomic(self) -> str:
        ints = [p for p, k in self.pointers.items() if k in ("int", "float")]
        if not ints:
            return self.load()
        p = self.r.choice(ints)
        kind = self.pointers[p]
        f = self.r.choice(
            ["Add", "Add", "Exch"] if kind == "float" else ["Add", "Max", "Or", "Exch"]
        )
        text = f"atomic{f}(&{p}[{self.index(ELEMENTS).text}], ({kind})1)"
        return f"acc += (double){text};" if self.r.random() < 0.4 else f"{text};"

    def local(self) -> str:
        a = self.held(self.number())
        v = self.name("i")
        self.scope.append(Number(v, a.low, a.high))
        return f"int {v} = {a.text};"

    def inside(self, count: int) -> str:
        before = len(self.scope)
        self.depth += 1
        text = "\n".join(self.statement() for _ in range(count))
        self.depth -= 1
        del self.scope[before:]
        return text

    def loop(self) -> str:
        r = self.r
        i = self.name("j")
        start = r.choice(
            [Number("0", 0, 0), Number("1", 1, 1), Number("(int)threadIdx.x", 0, self.block[0] - 1)]
        )
        end, step = r.choice([(Number("m", 1, 12), 1), (Number("m", 1, 12), 3), (Number("8", 8, 8), 1),
                              (Number("(int)(threadIdx.x & 7)", 0, 7), 1), (Number("s", 1, 40), 7),
                              (Number("150", 150, 150), self.block[0])])  # fmt: skip
        unroll = r.choice(["", "", "#pragma unroll 1\n", "#pragma unroll 4\n", "#pragma unroll\n"])
        head = f"for (int {i} = {start.text}; {i} < {end.text}; {i} += {step})"
        low, high = start.low, max(start.low, end.high - 1)
        if r.random() < 0.15:
            head, low, high = f"for (int {i} = 64; {i} > 0; {i} >>= 1)", 1, 64
        elif r.random() < 0.25:
            stride = "gridDim.x * blockDim.x"
            head = (
                f"for (int {i} = blockIdx.x * blockDim.x + threadIdx.x; {i} < n; {i} += {stride})"
            )
            low, high = 0, 4000
        before = len(self.scope)
        self.scope += [Number(i, low, high)] * 3
        body = self.inside(r.randrange(1, 3))
        del self.scope[before:]
        return f"{unroll}{head} {{\n{body}\n}}"

    def tile(self) -> str:
        """A shared array, written, waited for, read."""
        r = self.r
        t = self.name("t")
        kind = r.choice(list(TYPES))
        rows, columns, pad = r.choice([8, 16, 32]), r.choice([16, 32, 33]), r.choice([0, 0, 1, 2])
        if TYPES[kind][1] * rows * (columns + pad) > 9000 or len(self.shared) > 3:
            rows = 4
        self.shared.append(f"__shared__ {kind} {t}[{rows}][{columns + pad}];")
        place = [f"{t}[{self.index(rows).text}][{self.index(columns).text}]" for _ in range(2)]
        return (f"{place[0]} = ({kind})acc;\n__syncthreads();\n"
                f"acc += (double){place[1]};\n__syncthreads();")  # fmt: skip

    def statement(self) -> str:
        r = self.r
        deep = self.depth > 1
        kinds = ["load"] * 4 + ["store"] * 2 + ["atomic", "local", "local"]
        kinds += [] if deep else ["loop", "loop", "if", "if"]
        if self.depth == 0:
            kinds += ["tile", "return"]
        kind = r.choice(kinds)
        if kind == "if":
            text = f"if {self.condition()} {{\n{self.inside(r.randrange(1, 3))}\n}}"
            if r.random() < 0.3:
                text += f" else {{\n{self.inside(1)}\n}}"
            return text
        if kind == "return":
            return f"if {self.condition()} return;"
        return str(getattr(self, kind)())

    def kernel(self) -> Sample:
        r = self.r
        kinds = [r.choice(list(TYPES)) for _ in range(r.randrange(2, 4))]
        struct = r.random() < 0.3
        arguments, formal, before = [], [], ""
        if struct:
            before = "struct S { int a; float* p; int b; int* q; };\n"
            self.pointers |= {"st.p": "float", "st.q": "int"}
            self.scope += [Number("st.a", 1, 40), Number("st.b", 1, 200)]
            formal.append("S st")
            arguments.append(Argument("st", "struct", 8, ((0, 4), (8, 8), (16, 4), (24, 8))))
        for k, kind in enumerate(kinds):
            self.pointers[f"p{k}"] = kind
            formal.append(f"{kind}* p{k}" if r.random() < 0.4 else f"{kind}* __restrict__ p{k}")
            arguments.append(Argument(f"p{k}", TYPES[kind][0], 16))
        for n in ("n", "s", "m"):
            formal.append(f"int {n}")
            arguments.append(Argument(n, "i32"))
        body = []
        for _ in range(r.randrange(2, 7)):
            text = self.statement()
            body.append(text)
        body.append(self.store())
        threads = self.block[0] * self.block[1] * self.block[2]
        source = (
            f"{before}{''.join(self.functions.values())}"
            f'extern "C" __global__ void __launch_bounds__({threads}) k({", ".join(formal)}) {{\n'
            f"{' '.join(self.shared)}\ndouble acc = 0;\n" + "\n".join(body) + "\n}\n"
        )
        shots = [
            Shot(grid, {"n": r.choice([1, 31, 100, 257, 1000, 4000]), "s": r.randrange(1, 41),
                        "m": r.randrange(1, 13), "st.0": r.randrange(1, 41), "st.16": r.randrange(1, 200)},
                 {a.name: r.choice([0, 0, 1, 3, 5]) for a in arguments})
            for grid in self.grids
        ]  # fmt: skip
        return Sample("cuda", self.seed, source, self.block, arguments, shots)


class Ptx:
    """Writes one kernel of PTX, instruction by instruction; everything wraps as it likes."""

    def __init__(self, seed: int):
        self.seed = seed
        self.r = random.Random(seed)
        self.block = self.r.choice(BLOCKS)
        self.lines: list[str] = []
        self.ints = ["%r1", "%r2", "%r3", "%r4", "%r5", "%r6"]
        self.next = 7
        self.labels = 0
        self.predicates = 1
        self.wide = 3

    def new(self) -> str:
        self.next += 1
        return f"%r{self.next - 1}"

    def predicate(self) -> str:
        p = f"%p{self.predicates}"
        self.predicates += 1
        r = self.r
        kind = r.choice(["s32", "u32"])
        second = r.choice([self.operand(), str(r.choice([0, 1, 3, 16, 31, 100]))])
        self.lines.append(
            f"setp.{r.choice(['lt', 'le', 'gt', 'ge', 'eq', 'ne'])}.{kind} {p}, {self.operand()}, {second};"
        )
        return p

    def operand(self) -> str:
        return self.r.choice(self.ints[-4:] + self.ints)

    def compute(self) -> None:
        r = self.r
        d, a, b, c = self.new(), self.operand(), self.operand(), self.operand()
        k = r.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 33, 100, 255])
        s = r.choice(["s32", "u32"])
        text = r.choice([
            f"add.{s} {d}, {a}, {b}", f"add.{s} {d}, {a}, {k}", f"sub.{s} {d}, {a}, {b}",
            f"mul.lo.{s} {d}, {a}, {k}", f"mul.lo.{s} {d}, {a}, {b}", f"mad.lo.{s} {d}, {a}, {k}, {c}",
            f"and.b32 {d}, {a}, {k}", f"or.b32 {d}, {a}, {b}", f"xor.b32 {d}, {a}, {b}",
            f"shl.b32 {d}, {a}, {k & 7}", f"shr.{s} {d}, {a}, {k & 7}", f"div.{s} {d}, {a}, {k}",
            f"rem.{s} {d}, {a}, {k}", f"min.{s} {d}, {a}, {b}", f"max.{s} {d}, {a}, {b}",
            f"bfe.{s} {d}, {a}, {k & 15}, {1 + k % 9}", f"bfi.b32 {d}, {a}, {b}, {k & 15}, {k % 9}",
            f"prmt.b32 {d}, {a}, {b}, 0x{r.randrange(1 << 16):x}", f"popc.b32 {d}, {a}",
            f"lop3.b32 {d}, {a}, {b}, {c}, 0x{r.randrange(256):x}", f"clz.b32 {d}, {a}",
            f"shf.{r.choice('lr')}.wrap.b32 {d}, {a}, {b}, {k & 31}", f"not.b32 {d}, {a}",
            f"mul.hi.{s} {d}, {a}, {b}", f"cvt.{r.choice(['s32.s16', 'u32.u8', 's32.s8', 'u32.u16'])} {d}, {a}",
            f"abs.s32 {d}, {a}", f"neg.s32 {d}, {a}", f"sad.u32 {d}, {a}, {k}, {c}", f"brev.b32 {d}, {a}",
            f"add.{r.choice('us')}16x2 {d}, {a}, {b}", f"mov.b32 {d}, {a}", f"bfind.{s} {d}, {a}",
            f"min.{r.choice('us')}16x2 {d}, {a}, {b}", f"max.{r.choice('us')}16x2 {d}, {a}, {b}",
        ])  # fmt: skip
        if ".s8" in text or ".u8" in text or ".s16 " in text or ".u16 " in text:
            self.lines.append(f"cvt.u16.u32 %h1, {a};")
            text = text.rpartition(",")[0] + ", %h1"
        if r.random() < 0.12:
            text = f"selp.b32 {d}, {a}, {b}, {self.predicate()}"
        self.lines.append(text + ";")
        self.ints.append(d)

    def access(self, guard: str = "") -> None:
        r = self.r
        kind, size = r.choice([("b32", 4), ("v2.b32", 8), ("v4.b32", 16), ("b16", 2), ("b8", 1),
                               ("b64", 8), ("v2.b16", 4)])  # fmt: skip
        shared = r.random() < 0.25
        limit = (4096 if shared else BYTES // 2) // size
        index = self.new()
        if r.random() < 0.5:
            self.lines.append(f"and.b32 {index}, {self.operand()}, {limit - 1};")
        else:
            self.lines.append(
                f"rem.u32 {index}, {self.operand()}, {limit - r.randrange(limit // 2)};"
            )
        w = self.wide
        self.wide += 2
        if shared:
            place, at = self.new(), self.new()
            self.lines += [f"mul.lo.u32 {place}, {index}, {size};", f"mov.u32 {at}, tile;",
                           f"add.u32 {at}, {at}, {place};"]  # fmt: skip
            where, space = at, "shared"
        else:
            self.lines += [f"mul.wide.u32 %rd{w}, {index}, {size};",
                           f"add.s64 %rd{w + 1}, %rd{r.choice([1, 2])}, %rd{w};"]  # fmt: skip
            where, space = f"%rd{w + 1}", "global"
        if guard == "" and r.random() < 0.3:
            guard = f"@{r.choice(['', '!'])}{self.predicate()} "
        register = {"b16": "%h", "b8": "%h", "b64": "%rd"}.get(kind.rpartition(".")[2], "%r")
        many = int(kind[1]) if kind[0] == "v" else 1
        base = {"%h": 10, "%rd": 400, "%r": 900}[register]
        names = [f"{register}{base + i}" for i in range(many)]
        data = names[0] if many == 1 else "{" + ", ".join(names) + "}"
        how = r.choice(["ld", "ld", "st", "red"])
        if how == "red":
            how = "ld" if kind != "b32" else how
        if how == "ld":
            self.lines.append(f"{guard}ld.{space}.{kind} {data}, [{where}];")
        elif how == "st":
            self.lines.append(f"{guard}st.{space}.{kind} [{where}], {data};")
        else:
            self.lines.append(f"{guard}red.{space}.add.u32 [{where}], 1;")

    def body(self, depth: int) -> None:
        r = self.r
        for _ in range(r.randrange(3, 8)):
            self.compute()
        for _ in range(r.randrange(1, 4)):
            pick = r.random()
            if pick < 0.25 and depth < 2:
                self.labels += 1
                label = f"SKIP{self.labels}"
                before = list(self.ints)
                self.lines.append(f"@{r.choice(['', '!'])}{self.predicate()} bra {label};")
                self.body(depth + 1)
                self.ints = before
                self.lines.append(f"{label}:")
            elif pick < 0.45 and depth < 2:
                self.loop(depth)
            else:
                self.access()
            self.compute()

    def loop(self, depth: int) -> None:
        r = self.r
        self.labels += 1
        label, p = f"LOOP{self.labels}", f"%p{self.predicates}"
        self.predicates += 1
        i, carried = self.new(), self.new()
        step = r.choice([1, 1, 2, 3])
        end = r.choice(["%r6", "5", "9"])
        if r.random() < 0.3:
            end = self.new()
            self.lines.append(f"and.b32 {end}, %r1, {r.choice([3, 7])};")
        self.lines += [f"mov.u32 {i}, 0;", f"mov.u32 {carried}, {self.operand()};", f"{label}:"]
        before = list(self.ints)
        self.ints += [i, i, carried]
        self.body(depth + 1)
        change = r.choice([f"add.u32 {carried}, {carried}, {r.choice([4, 12, 32, 100])};",
                           f"shr.u32 {carried}, {carried}, 1;", f"xor.b32 {carried}, {carried}, 1;",
                           f"add.u32 {carried}, {carried}, %r5;", f"mov.u32 {carried}, {i};"])  # fmt: skip
        self.lines += [change, f"add.u32 {i}, {i}, {step};", f"setp.lt.u32 {p}, {i}, {end};",
                       f"@{p} bra {label};"]  # fmt: skip
        self.ints = before

    def kernel(self) -> Sample:
        r = self.r
        self.body(0)
        self.access()
        x, y, z = self.block
        body = "\n".join(self.lines)
        text = f""".version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 x, .param .u64 .ptr .global .align 16 y,
.param .u32 n, .param .u32 s, .param .u32 m)
.reqntid {x}, {y}, {z}
{{
.reg .pred %p<{self.predicates + 1}>;
.reg .b16 %h<20>;
.reg .b32 %r<1000>;
.reg .b64 %rd<500>;
.shared .align 16 .b8 tile[4096];
ld.param.u64 %rd1, [x];
ld.param.u64 %rd2, [y];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %tid.y;
ld.param.u32 %r4, [n];
ld.param.u32 %r5, [s];
ld.param.u32 %r6, [m];
{"".join(f"mov.b32 %r{900 + i}, 0;" for i in range(4))}
{"".join(f"mov.b16 %h{10 + i}, 0;" for i in range(4))}
mov.b64 %rd400, 0;
{body}
ret;
}}
"""
        arguments = [Argument("x", "*i8", 16), Argument("y", "*i8", 16)]
        arguments += [Argument(n, "i32") for n in ("n", "s", "m")]
        shots = [
            Shot((r.choice([1, 2, 4, 7]), 1, 1),
                 {"n": r.choice([0, 1, 100, -(2**31), -7]), "s": r.randrange(1, 41), "m": r.randrange(1, 9)},
                 {"x": r.choice([0, 1, 3]), "y": r.choice([0, 2])})
            for _ in range(2)
        ]  # fmt: skip
        return Sample("ptx", self.seed, text, self.block, arguments, shots)


class Triton:
    """Writes one kernel of Triton."""

    DTYPES = ("fp32", "fp16", "i8", "i16", "i32", "fp64", "bf16")

    def __init__(self, seed: int):
        self.seed = seed
        self.r = random.Random(seed)
        self.names: dict[int, list[str]] = {1: [], 2: []}
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def number(self, rank: int, depth: int = 2) -> str:
        r = self.r
        if depth == 0 or r.random() < 0.2:
            pool = self.names[rank] * 3 + ["pid", "s"]
            return r.choice(pool) if r.random() < 0.85 else str(r.choice([1, 3, 8, 17]))
        a = self.number(rank, depth - 1)
        c = r.choice([2, 3, 4, 5, 7, 8, 16, 33])
        kind = r.choice(["+", "+", "*", "*", "//", "%", "&", "where", "max", "^", "i16", ">>"])
        if kind == "+":
            return f"({a} + {self.number(rank, depth - 1)})"
        if kind == "where":
            return f"tl.where({self.number(rank, 1)} < {c}, {a}, {self.number(rank, depth - 1)})"
        if kind == "max":
            return f"tl.maximum({a}, {self.number(rank, depth - 1)})"
        if kind == "i16":
            return f"(({a}) + 0 * {self.names[rank][0]}).to(tl.int16).to(tl.int32)"
        return f"({a} {kind} {c})"

    def place(self, rank: int) -> tuple[str, str]:
        """An index and its mask."""
        r = self.r
        base = self.names[rank][0]
        i = f"({self.number(rank)} + 0 * {base})"
        if r.random() < 0.3:
            i = r.choice(self.names[rank])
        if r.random() < 0.5:
            return f"tl.abs({i}) % {r.choice([ELEMENTS, 1000, 4097])}", ""
        return i, f"({i} >= 0) & ({i} < {r.choice(['n', 'n', str(ELEMENTS)])})"

    def statement(self, depth: int = 0) -> list[str]:
        r = self.r
        rank = r.choice([1, 2, 2])
        kind = r.choice(
            ["load"] * 4 + ["store"] * 2 + ["atomic", "sum", "let"] + ([] if depth else ["for"] * 2)
        )
        i, mask = self.place(rank)
        masked = f", mask={mask}" if mask else ""
        p = r.choice(self.pointers)
        if kind == "let":
            v = self.name("i")
            text = f"{v} = {self.number(rank)} + 0 * {self.names[rank][0]}"
            if depth == 0:
                self.names[rank].append(v)
            return [text]
        if kind == "load":
            other = ", other=0" if mask and r.random() < 0.6 else ""
            to = {1: "acc1", 2: "acc2"}[rank]
            return [f"{to} += tl.load({p} + {i}{masked}{other}).to(tl.float32)"]
        if kind == "atomic" and "a" in self.pointers:
            return [f"tl.atomic_add(a + {i}, acc{rank}{masked})"]
        if kind == "sum":
            if rank == 1:
                return ["tl.store(" + p + " + pid, tl.sum(acc1, 0).to(" + p + ".dtype.element_ty))"]
            axis = r.choice([0, 1])
            along = {0: "cols", 1: "rows"}[axis]
            return [f"tl.store({p} + {along}, tl.sum(acc2, {axis}).to({p}.dtype.element_ty))"]
        if kind == "for":
            v = self.name("j")
            end = r.choice(["m", "4", "tl.cdiv(n, BLOCK * 8)"])
            before = {k: list(x) for k, x in self.names.items()}
            for k in (1, 2):
                self.names[k] += [f"({self.names[k][0]} + {v} * {r.choice(['BLOCK', 's', '3'])})"]
            inner = [line for _ in range(r.randrange(1, 3)) for line in self.statement(1)]
            self.names = before
            return [
                f"for {v} in range({r.choice(['0, ', ''])}{end}):",
                *("    " + line for line in inner),
            ]
        return [f"tl.store({p} + {i}, acc{rank}.to({p}.dtype.element_ty){masked})"]

    def kernel(self) -> Sample:
        r = self.r
        block, rows, columns = (
            r.choice([64, 128, 256, 512]),
            r.choice([4, 8, 16]),
            r.choice([16, 32, 64]),
        )
        self.pointers = ["x", "y", "a"]
        types = [r.choice(self.DTYPES), r.choice(self.DTYPES), "fp32"]
        self.names[1] = ["offs"]
        self.names[2] = ["tile"]
        lines = [line for _ in range(r.randrange(2, 6)) for line in self.statement()]
        lines += [f"tl.store(y + offs % {ELEMENTS}, acc1.to(y.dtype.element_ty))",
                  "tl.store(x + tile, acc2.to(x.dtype.element_ty), mask=tile < n)"]  # fmt: skip
        body = "\n    ".join(lines)
        source = f"""import triton
import triton.language as tl


@triton.jit
def k(x, y, a, n, s, m, BLOCK: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    rows = tl.arange(0, R)
    cols = tl.arange(0, C)
    tile = (pid * R + rows)[:, None] * {r.choice(["C", "s", "(C + 1)", "100"])} + cols[None, :]
    acc1 = tl.zeros((BLOCK,), tl.float32)
    acc2 = tl.zeros((R, C), tl.float32)
    {body}
"""
        warps = r.choice([1, 2, 4, 8])
        divisible = [r.choice([":16", ""]) for _ in range(3)]
        signature = ", ".join([*(f"*{t}{d}" for t, d in zip(types, divisible, strict=True)),
                               "i32", "i32", "i32", str(block), str(rows), str(columns)])  # fmt: skip
        arguments = [Argument(n, f"*{t}", 16 if d else 8)
                     for n, t, d in zip("xya", types, divisible, strict=True)]  # fmt: skip
        arguments += [Argument(n, "i32") for n in ("n", "s", "m")]
        shots = [
            Shot((r.choice([1, 2, 3, 5]), 1, 1),
                 {"n": r.choice([17, 100, 1000, 3001, 4096]), "s": r.randrange(2, 70), "m": r.randrange(2, 6)},
                 {n: r.choice([0, 0, 1, 3]) for n in "xya"})
            for _ in range(2)
        ]  # fmt: skip
        return Sample(
            "triton", self.seed, source, (32 * warps, 1, 1), arguments, shots, signature, warps
        )


def sample(language: str, seed: int) -> Sample:
    """The kernel of a seed."""
    return {"cuda": Cuda, "ptx": Ptx, "triton": Triton}[language](seed).kernel()
