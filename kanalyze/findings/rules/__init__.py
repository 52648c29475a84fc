"""The rules, one module each: its docstring is what ``kanalyze explain`` shows.

The docstring begins with a title and has the sections "What it says", "Why it is slow", "How it is
detected", "How it is proven", "Example" and "Source". A module has one or more of

- ``check_kernel(facts)``: a kernel as `kanalyze ptx` and `kanalyze traffic` see it,
- ``check_launch(facts)``: a launch with its estimate, for `kanalyze traffic`,
- ``check_profile(profile)``: the rows of `kanalyze decode`,

which yield findings, and may have ``prove(facts, finding)``, which makes the change that the
finding advises, and returns the finding with the outcome, or None where the change does not help.
"""
