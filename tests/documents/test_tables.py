"""The tables of facts in the documents have the facts of the code."""

import pytest
from tools.tables import TABLES, Table


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.document} {table.head}")
def test_a_table_has_the_facts_of_the_code(table: Table) -> None:
    facts = {name: list(cells) for name, cells in table.facts().items()}
    assert table.documented() == facts, "run python tests/tools/tables.py, and fill in the empty cells"
