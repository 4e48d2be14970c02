"""``optsched instances``: the shipped instances."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from optsched.cli.options import Json
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from optsched.cli.tables import Grid


def instances(shell: Shell, as_json: Json = False) -> int:
    """List the shipped instances; every command that reads an instance also reads `@name`.

    Examples:
        optsched instances
        optsched solve @quickstart
    """
    from optsched.api import load
    from optsched.instance.shipped import shipped_names

    descriptions = _shipped_descriptions()
    found = []
    for name in shipped_names():
        instance = load(f"@{name}")
        found.append(
            {
                "name": f"@{name}",
                "jobs": len(instance.jobs_table),
                "pools": instance.cluster.usable_gpus(instance.now),
                "description": descriptions.get(name, ""),
            }
        )
    shell.answer(as_json, lambda: {"instances": found}, [_table(found)])
    return 0


def _table(found: list[dict[str, Any]]) -> Grid:
    from optsched.cli.tables import table

    rows = [
        [
            item["name"],
            item["description"],
            f"{item['jobs']:,}",
            f"{sum(item['pools'].values()):,}",
            str(len(item["pools"])),
        ]
        for item in found
    ]
    columns = ("name", "what it shows", "jobs", "GPUs", "pools")
    return table(*columns, rows=rows, left=2, title="Instances that ship")


def _shipped_descriptions() -> dict[str, str]:
    """The last column of the table in the folder's README.md, by instance."""
    from optsched.instance.shipped import shipped_folder

    readme = shipped_folder() / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    rows = re.findall(r"^\|\s*`([\w.-]+)\.json`\s*\|.*\|\s*([^|]+?)\s*\|\s*$", text, re.MULTILINE)
    return {name: words.replace("`", "") for name, words in rows}
