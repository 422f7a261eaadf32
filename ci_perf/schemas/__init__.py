"""JSON Schema 2020-12 of the files."""
