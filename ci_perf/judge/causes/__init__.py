"""Why a case takes another time: mechanisms as data, each recognised in counters of both sides. Pure.

sides        the counters of both sides, and what a busy unit accounts for
rule         a rule, and a cause that it found
launch       rules of occupancy, waves of blocks, split and fused kernels
compute      rules of instructions, pipes and divergence
machine_code  what the machine code of both sides tells
lines        the source line that changed most
access       rules of how well requests use memory
reuse        rules of data that a thread or a block could keep
traffic      rules of L2 and DRAM
waiting      rules of atomics, barriers and other stalls
host         rules of the timeline
of_readings  the sides, from readings of ncu and from timelines
explanation  asks all rules and ranks the causes

A unit that is busy for u1 of t1 cycles in place of u0 of t0 accounts for u1 t1 - u0 t0 of the added t1 - t0. Where no
unit accounts for the added time, warps wait: that part is left to mechanisms of latency. Fewer resident warps account
for a time that is longer by the ratio of the warps, unless a unit is saturated.
"""

from ci_perf.judge.causes.explanation import Explanation, explain, explain_host, explain_sides, moved
from ci_perf.judge.causes.rule import Cause
from ci_perf.judge.causes.sides import GpuKernel, Side, Sides

__all__ = ["Cause", "Explanation", "GpuKernel", "Side", "Sides", "explain", "explain_host", "explain_sides", "moved"]
