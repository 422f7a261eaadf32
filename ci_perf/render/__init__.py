"""A report as text of some kind: terminal, Markdown, HTML, CSV, JUnit. Pure: a value in, a string out."""
