"""A report as text: terminal, Markdown, HTML, CSV, JSON, JUnit. Pure: a value in, text out.

cells      the cells and numbers of a row, shared by all formats
charts     what the charts of a case show
explanations  why a case changed
fitting    tables that become blocks in a narrow terminal
folder     the small files of the artifact folder
html       the report as one HTML page, with page.js for its table
html_case  a case on that page
json_text  JSON for programs
junit      JUnit XML
markdown   the pull request comment
sections   the sections of the comment: its tables and lists
tables     Markdown tables, and what GitHub folds
tabular    CSV
terminal   tables for people
"""
