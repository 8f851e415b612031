"""A state that an older hush has written is brought up to date, and forgets nothing."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path

from fake_transport import HEIGHTS
from old_state import VERSION_1

from hush_client.answer import Question, answer
from hush_client.policy import Policy
from hush_client.state import ledger
from hush_client.state.database import _MIGRATIONS, FILE_NAME, State
from hush_common.rng import SystemRng
from hush_common.task_file import decode_task

TASK = decode_task(HEIGHTS)
READING = TASK.domain.read(172.0)
CHARGE = ("d", "heights", 0, TASK.digest, "workplaces", "laplace", "1/1", b"i" * 16, "2026-01-01T00:00:00+00:00")


async def test_a_ledger_of_version_1_keeps_its_charges_and_learns_the_new_kinds(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.executescript(VERSION_1)
        with connection:
            connection.execute("INSERT INTO account VALUES ('d', 'workplaces', '1/1')")
            connection.execute("INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", CHARGE)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(2):
        state = await State.open(tmp_path)
        question = Question("d", TASK, "topic", Policy(), now)
        receipt, _ = await state.run(partial(answer, question=question, value=READING, rng=SystemRng()))
        refused = Question("e", TASK, "topic", Policy(lifetime=Fraction(0)), now)
        await state.run(partial(answer, question=refused, value=READING, rng=SystemRng()))
        (charge,) = await state.run(partial(ledger.charges, device="d", purpose="workplaces"))
        (refusal,) = await state.run(ledger.refusals)
        memories = await state.run(lambda c: c.execute("SELECT count(*) FROM memory").fetchone())
        await state.close()
        assert (receipt.status, receipt.spent) == ("already_answered", Fraction(1))
        assert (charge.kind, charge.resends, charge.epsilon) == ("draw", 0, Fraction(1))
        assert (refusal.device, refusal.reason) == ("e", "over_budget")
        assert memories == (0,)


async def test_resends_that_were_counted_by_report_ids_stay_counted(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.executescript(VERSION_1)
        for statement in (statement for statements in _MIGRATIONS[:2] for statement in statements):
            connection.execute(statement)
        with connection:
            for task, report_id in (("heights", b"i" * 16), ("weights", b"j" * 16)):
                row = ("d", task, 0, TASK.digest, "workplaces", "laplace", "1/1", report_id, CHARGE[-1], "draw")
                connection.execute("INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("INSERT INTO resend VALUES (?, 2)", (b"i" * 16,))
            connection.execute("PRAGMA user_version = 3")
    for _ in range(2):
        state = await State.open(tmp_path)
        charges = await state.run(partial(ledger.charges, device="d", purpose="workplaces"))
        await state.close()
        assert [(charge.task, charge.resends, charge.sequence) for charge in charges] == [
            ("heights", 2, None),
            ("weights", 0, None),
        ]


async def test_an_upgraded_state_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with closing(sqlite3.connect(tmp_path / "old" / FILE_NAME)) as connection:
        connection.executescript(VERSION_1)
    columns = []
    for name in ("old", "new"):
        state = await State.open(tmp_path / name)
        columns.append(
            await state.run(
                lambda c: c.execute(
                    'SELECT m.name, c.name, c.type, c."notnull", c.dflt_value, c.pk FROM sqlite_master m '
                    "JOIN pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY m.name, c.cid"
                ).fetchall()
            )
        )
        await state.close()
    assert columns[0] == columns[1]
