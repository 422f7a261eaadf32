"""HTML pages of one file each: no file beside it, no network, charts in the colours of the page. Pure.

chart     charts as data (drawn by charts.js with plot.min.js, Observable Plot); the history of a case
document  the frame of a page, with page.css and the policy on its scripts
parts     texts, lists, tables and figures
"""
