"""The three questions: a kernel (`kernels`), a launch (`launch`), a profile (`profile`)."""
