"""`kanalyze.estimate` of what is counted alone: tests of it need no simulated launch."""

from functools import partial

import kanalyze

estimate = partial(kanalyze.estimate, simulate=False)
