"""What a shell puts for the value of a parameter: files, folders, tables; click does commands and options."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from hitables.ir.program import BUILT_IN

# The value of a parameter, as the help names it, that is a file or a folder.
FILES = ("FILE", "FILE6", "FILE.html", "A", "B", "MAP", "FILTERS", "TRACE", "SEED", "PATH")
FOLDERS = ("DIR",)


class Completed(click.Parameter):
    """A parameter whose value the shell completes if it is a file, a folder or a table."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        shown = self.metavar or (self.name or "").upper()
        values = {word.strip("[].") for word in shown.split()}
        if values.intersection(FILES):
            return [CompletionItem(incomplete, type="file")]
        if values.intersection(FOLDERS):
            return [CompletionItem(incomplete, type="dir")]
        if "TABLE" in values:
            return [CompletionItem(table) for table in BUILT_IN if table.startswith(incomplete)]
        return super().shell_complete(ctx, incomplete)
