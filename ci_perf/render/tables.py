"""Markdown tables, and text that GitHub folds."""

from collections.abc import Collection, Iterable, Sequence

from tabulate import tabulate

FOLDED = "<details><summary>{title}</summary>\n\n{body}\n\n</details>"
"""GitHub needs empty lines around Markdown inside HTML."""
_NO_BREAK = "\u00a0"


def table(header: Sequence[str], lines: Iterable[Sequence[str]], numbers: Collection[str] = ()) -> str:
    """Return a GitHub table; the columns named in `numbers` are aligned to the right and not wrapped."""
    right = [name in numbers for name in header]
    kept = [[c.replace(" ", _NO_BREAK) if of else c for c, of in zip(line, right, strict=True)] for line in lines]
    align = ["right" if of else "left" for of in right]
    return tabulate(kept, headers=header, tablefmt="pipe", colalign=align, disable_numparse=True)
