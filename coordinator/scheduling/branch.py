"""A branch of the tree of prefixes: some pages in a row."""

from __future__ import annotations

PageKey = tuple[int, ...]  # the token ids of one page


class Branch:
    """Pages in a row, None for a gap, the tokens of each, and the branches that grow from their end.

    `states` are the slots of the checkpoints, each by the place of the page at whose end it was left. The root has no
    pages. A branch from which nothing grows ends with a page.
    """

    __slots__ = ("children", "keys", "pages", "parent", "states")

    def __init__(self, parent: Branch | None, keys: list[PageKey], pages: list[int | None]) -> None:
        self.parent = parent
        self.keys = keys
        self.pages = pages
        self.children: dict[PageKey, Branch] = {}
        self.states: dict[int, int] = {}
