"""`kanalyze.estimate` of what is counted alone: tests of it need no simulated launch
and no findings, whose advice is proved by compiling and counting more."""

from functools import partial

import kanalyze

estimate = partial(kanalyze.estimate, simulate=False, findings=False)
