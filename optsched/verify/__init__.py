"""`verify`: a solution file against its instance, every number recomputed."""

from __future__ import annotations

import sys
from types import ModuleType

from optsched.verify.check import verify
from optsched.verify.findings import Finding, Verification

__all__ = ["Finding", "Verification", "verify"]


class _CallableModule(ModuleType):
    """A module that can be called: an import of this package replaces the function
    `optsched.verify`.
    """

    __call__ = staticmethod(verify)


sys.modules[__name__].__class__ = _CallableModule
__wrapped__ = verify  # where `inspect.signature` looks for the signature of what is called
