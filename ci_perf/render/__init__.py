"""A report as text of some kind: terminal, Markdown, HTML, CSV, JUnit. Pure: a value in, a string out.

cells      the words of a row, shared by all of them
folder     the small files of the artifact folder
html       the comment as a page
json_text  JSON for programs
junit      JUnit XML
markdown   the pull request comment
tabular    CSV
terminal   tables for people
"""
