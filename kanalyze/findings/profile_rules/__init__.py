"""The rules on profiles, one module each; see `kanalyze.findings.rules` for docstrings.

A module ends with ``RULE = ProfileRule(…)``. It imports no rule on kernels: `kanalyze decode` needs
none. A rule on launches and profiles is explained by its module in `kanalyze.findings.rules`.
"""
