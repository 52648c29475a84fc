"""``kanalyze explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kanalyze.cli import options, output

if TYPE_CHECKING:
    from kanalyze.findings.catalogue import Explanation
    from kanalyze.text.page import Page


@click.command("explain")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@options.output_options()
def command(ids: tuple[str, ...], to: output.Destination) -> None:
    """What a finding says, why it is slow, how it is detected and proven.

    Without an ID: a line for each finding, with the commands that report it.

    \b
    Examples:
      kanalyze explain
      kanalyze explain bank-conflicts
    """
    from kanalyze.findings import catalogue

    chosen = [catalogue.explanation(id_) for id_ in ids or catalogue.RULES]
    if to.format == "json":
        to.json({"schema": "kanalyze.explain/1", "rules": chosen, "unknown": []})
        return
    page = to.page()
    if ids:
        for rule in chosen:
            _whole(page, rule)
    else:
        _list(page, chosen)
    to.show(page)


def _list(page: Page, rules: list[Explanation]) -> None:
    width = max((len(rule.id) for rule in rules), default=0)
    for rule in rules:
        page.line(
            (rule.title, ""),
            (f" ({', '.join(rule.commands)})", "dim"),
            lead=[(f"{rule.id:<{width}}  ", "title")],
        )


def _whole(page: Page, rule: Explanation) -> None:
    page.blank()
    page.line((f"{rule.id}: {rule.title}", "title"), hang=2)
    page.line((f"reported by kanalyze {', '.join(rule.commands)}", "dim"))
    for head, body in rule.sections.items():
        page.blank()
        page.line((head, "label"))
        for line in _paragraphs(body):
            page.line((line, ""), lead=[("  ", "")], hang=2 if line.startswith("- ") else 0)


def _paragraphs(body: str) -> Iterator[str]:
    """The lines of a text, those of a paragraph as one; code (indented) stays as it is."""
    paragraph: list[str] = []
    for line in [*body.splitlines(), ""]:
        if paragraph and (not line.strip() or line.startswith(("- ", "    "))):
            yield " ".join(paragraph)
            paragraph = []
        if not line.strip() or line.startswith("    "):
            yield line
        else:
            paragraph.append(line.strip())
