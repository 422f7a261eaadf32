"""Mechanisms of traffic: how much reaches L2 and DRAM, and how much the caches answer."""

import math

from ci_perf.judge.causes.access import (
    DRAM,
    LOADS,
    LOCAL,
    MORE,
    MUCH_MORE,
    SAME,
    STORES,
    narrower,
    per_request,
    wider_type,
)
from ci_perf.judge.causes.reuse import smaller_tile
from ci_perf.judge.causes.rule import CUDA_GUIDE, NCU_GUIDE, SYMPTOM, Rule
from ci_perf.judge.causes.sides import Sides, share

_LEVELS = ("l1_hit_rate_pct", "l2_hit_rate_pct", "l2_sectors", *DRAM, "dram_throughput_pct", "l2_throughput_pct")
_LEAST_BYTES = float(1 << 20)
_LEAST_MORE = 1.05
_LEAST_POINTS = 0.5


def _more_dram(s: Sides) -> bool:
    moved = s.both(*DRAM)
    return moved is not None and moved[1] > _LEAST_MORE * moved[0] and moved[1] - moved[0] > _LEAST_BYTES


def _by_requests(s: Sides) -> float:
    """Return the part of the added DRAM traffic that more requests to L2 account for; the rest is misses of L2.

    DRAM traffic is L2 sectors times DRAM bytes a sector, so that the logarithms of both growths add up.
    """
    if not s.grew("l2_sectors", by=_LEAST_MORE):
        return 0.0
    if not _fewer_hits(s):
        return 1.0
    return share(math.log(s.times_of("l2_sectors")) / math.log(s.times_of(*DRAM)))


def _fewer_hits(s: Sides) -> bool:
    hits = s.both("l2_hit_rate_pct")
    return hits is not None and hits[1] <= hits[0] - _LEAST_POINTS


def _extra_pass(s: Sides) -> float:
    """Recognise more requests to L2 that reach DRAM; those for local memory are spills."""
    if not _more_dram(s) or wider_type(s):
        return 0.0
    local, sectors = s.both(*LOCAL), s.both("l2_sectors")
    grown = sectors[1] - sectors[0] if sectors else 0.0
    spilled = share((local[1] - local[0]) / grown) if local and grown > 0 else 0.0
    most = s.predicted(s.times_of(*DRAM))
    return _by_requests(s) * min(s.waits("dram_throughput_pct"), most) * (1 - spilled)


def _say_extra_pass(s: Sides) -> str:
    grown = [(word, name) for word, name in (("reads", DRAM[0]), ("writes", DRAM[1])) if s.grew(name, by=_LEAST_MORE)]
    times = s.times_of(*(name for _, name in grown)) ** (1 if s.slower else -1)
    if s.grew(LOADS[1], by=_LEAST_MORE) or s.grew(STORES[1], by=_LEAST_MORE):
        how = "an extra pass over global memory" if s.slower else "fewer passes over global memory"
    else:
        how = f"{'more' if s.slower else 'less'} traffic of global memory"
    parts = [f"{word} {s.arrow(name)}" for word, name in grown]
    return f"{how}: DRAM {', '.join(parts)} ({times:.3g} times as much); L2 sectors {s.arrow('l2_sectors')}"


def _thrash(s: Sides) -> float:
    """Recognise requests to L2 of which fewer are answered there."""
    if not _fewer_hits(s) or not _more_dram(s):
        return 0.0
    return (1 - _by_requests(s)) * min(s.waits("dram_throughput_pct"), s.predicted(s.times_of(*DRAM)))


def _lost_l1(s: Sides) -> float:
    """Recognise the same requests of the threads, of which fewer are answered by L1."""
    hits = s.both("l1_hit_rate_pct")
    if hits is None or hits[1] > hits[0] - 3 or not s.grew("l2_sectors", by=MORE) or s.grew(LOADS[0], by=SAME):
        return 0.0
    return min(s.waits("l2_throughput_pct", "dram_throughput_pct"), s.predicted(s.times_of("l2_sectors")))


def _again_from_l2(s: Sides) -> float:
    """Recognise more loads that L2 answers, each as good as before; those in place of shared memory are another."""
    requests = s.both("global_load_requests")
    more = requests and 0 < SAME * requests[0] < requests[1] and s.grew("l2_sectors", by=SAME)
    alike = 1 / SAME < per_request(s, LOADS) < SAME and not narrower(s) and not smaller_tile(s)
    if not more or not alike or _more_dram(s) or s.times_of("shared_wavefronts") < 1 / MUCH_MORE:
        return 0.0
    waits = s.waits("l2_throughput_pct", added=s.added("l2_sectors"))
    return min(waits, s.predicted(s.times_of("l2_sectors")))


def _more_l2(s: Sides) -> float:
    return s.busy("l2_throughput_pct") if s.grew("l2_sectors", by=SAME) and not _more_dram(s) else 0.0


RULES = (
    Rule(
        "l2-thrash",
        ("l2_hit_rate_pct", *DRAM, "dram_throughput_pct", "l2_sectors", "l1_hit_rate_pct"),
        _thrash,
        lambda s: (
            f"L2 thrash: L2 hit rate {s.arrow('l2_hit_rate_pct')}, so that DRAM traffic is {s.arrow(*DRAM)} for L2"
            f" sectors {s.arrow('l2_sectors')}"
            if s.slower
            else f"more hits in L2: hit rate {s.arrow('l2_hit_rate_pct')}, so that DRAM traffic is {s.arrow(*DRAM)}"
            f" for L2 sectors {s.arrow('l2_sectors')}"
        ),
        "The working set exceeds the L2 cache: block it, change the order of the blocks, or set an access policy.",
        f"{CUDA_GUIDE}, L2 Cache",
    ),
    Rule(
        "extra-traffic",
        (
            *DRAM,
            "dram_throughput_pct",
            "l2_sectors",
            "l2_hit_rate_pct",
            "global_load_requests",
            "global_store_requests",
        ),
        _extra_pass,
        _say_extra_pass,
        "Which array is read or written once more? Keep it in registers or shared memory, fuse the passes, and compare"
        " the types of the data.",
        f"{CUDA_GUIDE}, Effective Bandwidth",
        line_by="bytes",
    ),
    Rule(
        "extra-l2-traffic",
        ("global_load_requests", *_LEVELS),
        _again_from_l2,
        lambda s: (
            f"{'an extra pass' if s.slower else 'fewer passes'} over data in L2: global load requests"
            f" {s.arrow('global_load_requests')}, L2 sectors {s.arrow('l2_sectors')}, DRAM traffic as before"
        ),
        "Which array is read once more? Keep it in registers or shared memory, or fuse the passes.",
        f"{CUDA_GUIDE}, Effective Bandwidth",
        line_by="bytes",
    ),
    Rule(
        "l1-hits",
        _LEVELS,
        _lost_l1,
        lambda s: f"L1 hit rate {s.arrow('l1_hit_rate_pct')}: L2 sectors {s.arrow('l2_sectors')} for the same requests",
        "Blocks that share an L1 should use the same data; shared memory takes its space from L1.",
        f"{NCU_GUIDE}, Memory Tables",
    ),
    Rule(
        "l2-traffic",
        _LEVELS,
        _more_l2,
        lambda s: (
            f"{'more' if s.slower else 'less'} L2 traffic: sectors {s.arrow('l2_sectors')}, L2"
            f" {s.arrow('l2_throughput_pct')} busy"
        ),
        "The same data are read again from L2: keep them in shared memory or registers.",
        f"{NCU_GUIDE}, Memory Tables",
        weight=SYMPTOM,
        line_by="bytes",
    ),
)
