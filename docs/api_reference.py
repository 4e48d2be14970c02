"""The reference of the Python API: an extension of griffe, which reads docstrings, and a hook of mkdocs.

Docstrings name parameters that are alike on one line: ``steps, steps_done : float``. Griffe gives all of them the
annotation and the default of the first one.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import DocstringSectionParameters, Extension, Function


class EachParameter(Extension):
    """Each parameter has its own annotation and default."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Called for each function, once it is read."""
        sections = func.docstring.parsed if func.docstring else []
        for section in sections:
            if not isinstance(section, DocstringSectionParameters):
                continue
            for item in section.value:
                name = item.name.lstrip("*")
                if name not in func.parameters:
                    continue
                own = func.parameters[name]
                item.value = own.default
                if any(item.annotation is other.annotation for other in func.parameters):
                    item.annotation = own.annotation
                elif isinstance(item.annotation, str):
                    item.annotation = item.annotation.replace("`", "")


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs for each page: no dash where a parameter needs no words beside its name and type.

    Short code, such as an option, stays on one line.
    """
    html = re.sub(r'\s+–\s*<div class="doc-md-description">\s*</div>', "", html)
    return re.sub(r"<code>(?=[^<\n]{1,24}</code>)", '<code class="short">', html)
