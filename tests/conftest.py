"""All tests: numpy and scikit-learn compute in one thread, here and in the processes that tests start.

Matrices are small and workers of pytest share the cores: threads would wait for each other most of the time.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # read when numpy is loaded, which happens after this
