"""Names of GPU kernels brought to one form, for comparing and grouping; what people read is always the original.

The same kernel is called differently by other versions of a demangler (`<128, 4>` and `<(int)128, (int)4>`,
`<unnamed>::` and `(anonymous namespace)::`), and some compilers put a changing part into the name: a hash, a number in
the order of compilation, the specialisation of Triton. Every rule here shortens the name or moves a `const` to the
left, so applying all of them until nothing changes comes to an end and is idempotent.
"""

import re
from collections.abc import Iterable, Mapping
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
_TRITON = re.compile(r"(?<=\w)_(?=0[cde]|0\d*[cde])0[cde]{0,2}(?:\d+[cde]{0,2})*$")
_INDUCTOR = re.compile(
    r"^(triton_(?:poi|red|per|tem|for|spl|mix|fused)_\w*?)_+(?:\d+|(?=[a-f]*\d)[0-9a-f]{8,})$|^(triton)_+\d*$"
)
_HASH = re.compile(r"(?<=\w)_(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{16,64}$")


@lru_cache(maxsize=4096)
def normalize(name: str) -> str:
    """Return the form of a name that all versions of the tools share.

    >>> normalize("void <unnamed>::softmax<float, (int)6, (bool)0>(T2 *, const T1 *)")
    '<unnamed>::softmax<float,6,false>(T2*,const T1*)'
    >>> normalize("(anonymous namespace)::softmax<float, 6, false>(T2*, const T1*)")
    '<unnamed>::softmax<float,6,false>(T2*,const T1*)'
    >>> normalize("add_kernel_0d1d2d3d"), normalize("triton_poi_fused_add_relu_3")
    ('add_kernel', 'triton_poi_fused_add_relu')
    """
    while (changed := _step(name)) != name:
        name = changed
    return name


def _step(name: str) -> str:
    for pattern, replacement in _SPELLINGS:
        name = pattern.sub(replacement, name)
    for pattern in (_TRITON, _HASH):
        name = pattern.sub("", name)
    return _INDUCTOR.sub(r"\1\2", name)


@dataclass(frozen=True, slots=True)
class Collision:
    """Several kernels of one trace that share a normal form: grouped by it, they would be taken for one."""

    normal: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")
        return f"{len(self.names)} GPU kernels differ only in a changing part of their names: {shown}"


def groups(names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the different names of each normal form, in the order in which they first occur."""
    found: dict[str, dict[str, None]] = {}
    for name in names:
        found.setdefault(normalize(name), {})[name] = None
    return {normal: tuple(originals) for normal, originals in found.items()}


def collisions(names: Iterable[str]) -> tuple[Collision, ...]:
    """Return the normal forms that several of the names share; the names are those of one trace."""
    return tuple(Collision(normal, names) for normal, names in groups(names).items() if len(names) > 1)


@dataclass(frozen=True, slots=True)
class NameChanges:
    """The kernels of two traces of one case, told apart by their normal forms."""

    renamed: tuple[tuple[str, str], ...] = ()
    """Before and now: written differently, but one kernel."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def same_kernels(self) -> bool:
        """Whether both traces hold the same kernels, whatever they are called."""
        return not (self.added or self.removed)


def compare(before: Iterable[str], now: Iterable[str]) -> NameChanges:
    """Hold the kernels of two traces against each other: renamed, added or removed.

    >>> compare(["f<(int)4>(int *)", "gone"], ["f<4>(int*)", "new"])
    NameChanges(renamed=(('f<(int)4>(int *)', 'f<4>(int*)'),), added=('new',), removed=('gone',))

    A trace may lack the demangled names. Then a bare name stands for any kernel whose function is called so:

    >>> compare(["f", "g"], ["void ns::f<4>(int *)", "g"]).renamed
    (('f', 'void ns::f<4>(int *)'),)

    Mangled names cannot be held against others, so nothing is said of them.
    """
    before, now = tuple(before), tuple(now)
    if any(map(_is_mangled, before)) != any(map(_is_mangled, now)):
        return NameChanges()
    old, new = groups(before), groups(now)
    renamed = [
        pair
        for normal in old.keys() & new.keys()
        if set(old[normal]) != set(new[normal])
        for pair in zip(
            [name for name in old[normal] if name not in new[normal]],
            [name for name in new[normal] if name not in old[normal]],
            strict=False,
        )
    ]
    added = [name for normal, names in new.items() if normal not in old for name in names]
    removed = [name for normal, names in old.items() if normal not in new for name in names]
    bare = [(a, b) for a in removed for b in added if _is_bare(a) != _is_bare(b) and _function(a) == _function(b)]
    taken = {name for pair in bare for name in pair}
    return NameChanges(
        renamed=tuple(sorted([*renamed, *bare])),
        added=tuple(name for name in added if name not in taken),
        removed=tuple(name for name in removed if name not in taken),
    )


def _function(name: str) -> str:
    """Return the name without namespace, template and parameters.

    >>> _function("void at::native::<unnamed>::reduce<(int)512, ns::Sum>(ns::Sum)"), _function("reduce")
    ('reduce', 'reduce')
    """
    return re.split(r"[<(]", normalize(name).replace("<unnamed>", ""), maxsplit=1)[0].rpartition("::")[2]


def _is_bare(name: str) -> bool:
    return re.fullmatch(r"\w+", name) is not None


def _is_mangled(name: str) -> bool:
    return name.startswith("_Z")
