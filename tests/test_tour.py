"""The page follows a request through the files in the order in which an answer passes them."""

from __future__ import annotations

import re

from draw_rooms import PAGE
from tour import tour


def test_the_life_of_a_request_names_files_in_the_order_of_the_tour() -> None:
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("\n## The life of a request\n")[2].partition("\n## ")[0]
    steps = section.partition("\n1. ")[2]
    named = re.findall(r"[\w/]+\.py", steps)
    passed = [file for file, _ in tour()]
    assert len(named) > 15
    assert named == [file for file in passed if file in named], "order, or a file named twice"
