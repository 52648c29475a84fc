"""Findings: what is worth changing in a kernel or a profile, each with its proof.

One rule is one module of `kanalyze.findings.rules` and one line of `kanalyze.findings.catalogue`.
"""
