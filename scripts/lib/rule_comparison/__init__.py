"""The parts of scripts/compare-rules.

rules       the rules of other systems, for one process of each side
pair_rules  the same rules for pairs, that is with turns and fresh processes
shares      what the rules flag with one process
same_pairs  what they flag with the pairs of ci-perf, with 12 and with 3
table       tables of that
plot        a picture of that
"""
