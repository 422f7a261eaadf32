"""Normal forms of the names of GPU kernels, for comparing and grouping; reports show the original names.

The same kernel is called differently by other versions of a demangler (`<128, 4>` and `<(int)128, (int)4>`,
`<unnamed>::` and `(anonymous namespace)::`), and some compilers put a changing part into the name: a hash, a number in
the order of compilation, the specialisation of Triton. Every rule here shortens the name or moves a `const` to the
left, so applying all of them until nothing changes comes to an end and is idempotent.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\s+", " "),
        (r"^ | $", ""),
        # NOTE: nvcc calls an anonymous namespace after a hash of the file: `_GLOBAL__N__5e4f_9_reduce_cu_8b1`.
        (r"\(anonymous namespace\)|\{anonymous\}|`anonymous namespace'|_GLOBAL__N_\w+|_INTERNAL_\w{8,}", "<unnamed>"),
        # Casts of template arguments: `(int)128`, `(bool)1`, `(unsigned long)3`, `(ns::Kind)2`; and suffixes: `3ul`.
        (r"([<,] ?)\(bool\)1(?= ?[,>])", r"\1true"),
        (r"([<,] ?)\(bool\)0(?= ?[,>])", r"\1false"),
        (r"([<,] ?)\([\w: ]+\)(-?\d)", r"\1\2"),
        (r"([<,] ?-?\d+)[uUlL]+(?= ?[,>])", r"\1"),
        # Lambdas: `[lambda(int) (instance 1)]` of nvcc is `{lambda(int)#1}` of c++filt.
        (r"\[lambda(\((?:[^()\[\]]|\([^()]*\))*\)) ?\(instance (\d+)\)\]", r"{lambda\1#\2}"),
        # Only templates show their return type, and kernels return nothing.
        (r"^void ", ""),
        (r"^unnamed>(?=::)", "<unnamed>"),  # some tables cut a name in front
        (r"\[abi:[^\]]*\]|\$\d+$", ""),  # numba: a hash of the options, the number of the overload
        # Blanks that some demanglers put: `int *`, `a, b`, `> >`, `operator ()`.
        (r" (?=[*&,()<>\[\]])|(?<=[*&,(<>\[\]]) |(?<=\)) (?=const\b)", ""),
        # c++filt writes `float const*` for `const float*`.
        (r"(?<![\w:>])((?:(?:unsigned|signed|long) )*(?!const\b)[A-Za-z_][\w:]*) const(?=[*&,)>])", r"const \1"),
    )
)
_SURELY_TRITON = 3
"""From this many numbered parameters on, a suffix is Triton's; `reduce_0d` and `pad_0d1d` may be names of users."""
_INDUCTOR = re.compile(
    r"^(triton_(?:poi|red|per|tem|for|spl|mix|fused)_\w*?)_+(?:\d+|(?=[a-f]*\d)[0-9a-f]{8,})$|^(triton)_+\d*$"
)
_HASH = re.compile(r"(?<=\w)_(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{16,64}$")
_LAMBDA = re.compile(r"(\{lambda[^#]*#|__nv_h?dl_tag<[^&]*&[^,]*,)\d+")
"""The number of a lambda in its function is part of its name."""


@lru_cache(maxsize=4096)
def normalize(name: str) -> str:
    """Return the normal form of a name, which does not depend on the version of a tool.

    >>> normalize("void <unnamed>::softmax<float, (int)6, (bool)0>(T2 *, const T1 *)")
    '<unnamed>::softmax<float,6,false>(T2*,const T1*)'
    >>> normalize("(anonymous namespace)::softmax<float, 6, false>(T2*, const T1*)")
    '<unnamed>::softmax<float,6,false>(T2*,const T1*)'
    >>> normalize("add_kernel_0d1d2d3d"), normalize("triton_poi_fused_add_relu_3")
    ('add_kernel', 'triton_poi_fused_add_relu')
    """
    return _repeat(_step, name)


def is_cut(name: str) -> bool:
    """Return whether a name ends in a changing part, which its normal form does not have.

    >>> is_cut("triton_poi_fused_add_0"), is_cut("add_kernel_0d1d2d"), is_cut("pad_0d1d"), is_cut("f<(int)4>(int *)")
    (True, True, False, False)
    """
    return normalize(name) != _repeat(_spell, name)


def _repeat(step: Callable[[str], str], name: str) -> str:
    """Apply a step until it changes nothing."""
    while (changed := step(name)) != name:
        name = changed
    return name


def _step(name: str) -> str:
    name = _spell(name)
    stem, parameters = _specialised(name)
    name = _HASH.sub("", stem if parameters >= (1 if stem.startswith("triton_") else _SURELY_TRITON) else name)
    return _INDUCTOR.sub(r"\1\2", name)


def _spell(name: str) -> str:
    for pattern, replacement in _SPELLINGS:
        name = pattern.sub(replacement, name)
    return name


def _specialised(name: str) -> tuple[str, int]:
    """Split a name and the suffix of Triton 2, which lists all parameters; return the name and their number, or 0.

    The letters stand for 1 (`c`), a multiple of 16 (`d`) and of 8 (`e`).

    >>> _specialised("add_0d1d2de3"), _specialised("mm_0d1d2d3d4d5d6d7d8c9d10c"), _specialised("pad_0d1d")
    (('add', 4), ('mm', 11), ('pad', 2))
    >>> _specialised("conv_1d2d"), _specialised("k_01"), _specialised("f_0d(int*)"), _specialised("_0d1d2d")
    (('conv_1d2d', 0), ('k_01', 0), ('f_0d(int*)', 0), ('_0d1d2d', 0))
    """
    stem, _, suffix = name.rpartition("_")
    if not re.fullmatch(r"\w+", stem) or not re.search("[cde]", suffix):
        return name, 0
    rest, parameters = suffix, 0
    while rest and rest.startswith(str(parameters)):
        rest = rest.removeprefix(str(parameters)).lstrip("cde")
        parameters += 1
    return (name, 0) if rest else (stem, parameters)


def groups(names: Iterable[str], form: Callable[[str], str] = normalize) -> Mapping[str, tuple[str, ...]]:
    """Return the names of each form, without repetition, in the order of their first occurrence."""
    found: dict[str, dict[str, None]] = {}
    for name in names:
        found.setdefault(form(name), {})[name] = None
    return {form_: tuple(originals) for form_, originals in found.items()}


def collisions(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each normal form that several kernels of one trace share: grouping would mix them up."""
    return tuple(
        f"{len(shared)} GPU kernels differ only in a changing part of their names: {', '.join(shared[:3])}"
        + (", ..." if len(shared) > 3 else "")
        for shared in groups(names).values()
        if len(shared) > 1
    )


@dataclass(frozen=True, slots=True)
class NameChanges:
    """The differences between the kernels of two traces of one case, by normal form."""

    renamed: tuple[tuple[str, str], ...] = ()
    """The names before and now of the same kernel."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def same_kernels(self) -> bool:
        """Whether both traces have the same kernels, by any name."""
        return not (self.added or self.removed)


def compare(before: Iterable[str], now: Iterable[str]) -> NameChanges:
    """Compare the kernels of two traces: renamed, added or removed.

    >>> compare(["f<(int)4>(int *)", "gone"], ["f<4>(int*)", "new"])
    NameChanges(renamed=(('f<(int)4>(int *)', 'f<4>(int*)'),), added=('new',), removed=('gone',))

    A trace may lack the demangled names. Then a bare name stands for any kernel whose function is called so:

    >>> compare(["f", "g"], ["void ns::f<4>(int *)", "g"]).renamed
    (('f', 'void ns::f<4>(int *)'),)

    Mangled names cannot be compared with others: then the result is empty.
    """
    before, now = tuple(before), tuple(now)
    if any(name.startswith("_Z") for name in before) != any(name.startswith("_Z") for name in now):
        return NameChanges()
    old, new = groups(before), groups(now)
    removed: list[str] = []
    added: list[str] = []
    renamed: list[tuple[str, str]] = []
    for normal in dict.fromkeys((*old, *new)):
        names_before, names_now = old.get(normal, ()), new.get(normal, ())
        gone = [name for name in names_before if name not in names_now]
        come = [name for name in names_now if name not in names_before]
        renamed += zip(gone, come, strict=False)
        removed += gone[len(come) :]
        added += come[len(gone) :]
    for pairs_of in (_lone_pairs, _bare_pairs):
        pairs = pairs_of(removed, added)
        renamed += pairs
        removed = [name for name in removed if name not in {a for a, _ in pairs}]
        added = [name for name in added if name not in {b for _, b in pairs}]
    return NameChanges(renamed=tuple(sorted(renamed)), added=tuple(added), removed=tuple(removed))


def matches(before: Iterable[str], now: Iterable[str]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Match the kernels of two traces; one side of a match is empty for a kernel that was added or removed.

    Several that differ only in a changing part are taken together, unless both traces call them the same:

    >>> matches(["f", "triton_poi_fused_add_0"], ["f", "triton_poi_fused_add_3", "g"])
    ((('f',), ('f',)), (('triton_poi_fused_add_0',), ('triton_poi_fused_add_3',)), ((), ('g',)))
    >>> matches(["triton_red_fused_1", "triton_red_fused_2"], ["triton_red_fused_2", "triton_red_fused_3"])
    ((('triton_red_fused_1', 'triton_red_fused_2'), ('triton_red_fused_2', 'triton_red_fused_3')),)
    """
    before, now = tuple(before), tuple(now)
    changes = compare(before, now)
    if changes == NameChanges() and set(before) != set(now):
        return ()  # mangled names and others
    old, new = groups(before), groups(now)
    found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    elsewhere: dict[tuple[str, ...], tuple[str, ...]] = {}
    for normal, names in old.items():
        theirs = new.get(normal, ())
        if set(names) == set(theirs):
            found += [((name,), (name,)) for name in names]
        elif theirs:
            found.append((names, theirs))
        else:
            for name in names:
                called = tuple(b for a, b in changes.renamed if a == name)
                elsewhere[called] = (*elsewhere.get(called, ()), name)
    gone = elsewhere.pop((), ())
    found += [(mine, theirs) for theirs, mine in elsewhere.items()]
    found += [((name,), ()) for name in gone]
    taken = {name for _, theirs in found for name in theirs}
    return (*found, *(((), (name,)) for names in new.values() for name in names if name not in taken))


def _lone_pairs(before: Iterable[str], now: Iterable[str]) -> list[tuple[str, str]]:
    """Pair names that differ only in what may be a changing part, if there is one such name on each side."""
    old, new = groups(before, _weak), groups(now, _weak)
    return [(names[0], new[form][0]) for form, names in old.items() if len(names) == 1 == len(new.get(form, ()))]


def _bare_pairs(before: Iterable[str], now: Iterable[str]) -> list[tuple[str, str]]:
    """Pair the bare names of a trace without demangled names with all kernels of the function."""
    old, new = groups(before, function_name), groups(now, function_name)
    return [
        (a, b) for name, names in old.items() for a in names for b in new.get(name, ()) if _is_bare(a) != _is_bare(b)
    ]


def _weak(name: str) -> str:
    """Return a form without what may be a changing part, to pair a removed kernel with an added one.

    >>> _weak("pad_0d1d"), _weak("pad_0d1"), _weak("k<f()::{lambda(int)#2}>(int)")
    ('pad', 'pad', 'k<f()::{lambda(int)#}>(int)')
    """
    stem, parameters = _specialised(normalize(name))
    return _LAMBDA.sub(r"\1", stem if parameters >= _SURELY_TRITON - 1 else normalize(name))


def function_name(name: str) -> str:
    """Return the name without namespace, template and parameters.

    >>> function_name("void at::native::<unnamed>::reduce<(int)512, ns::Sum>(ns::Sum)"), function_name("reduce")
    ('reduce', 'reduce')
    """
    return re.split(r"[<(]", normalize(name).replace("<unnamed>", ""), maxsplit=1)[0].rpartition("::")[2]


def _is_bare(name: str) -> bool:
    return re.fullmatch(r"\w+", name) is not None
