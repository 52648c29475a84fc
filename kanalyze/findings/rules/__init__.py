"""The rules on kernels and launches, one module each.

A module's docstring is what ``kanalyze explain`` shows: a title and the sections "What it says",
"Why it is slow", "How it is detected", "How it is proven", "Example" and "Source". It ends with
``RULE = Rule(…)``, and has one line in `kanalyze.findings.catalogue`.
"""
