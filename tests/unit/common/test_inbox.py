"""Messages that came and were not taken yet: what a full inbox forgets, and what it never does."""

import pytest

from hush_common.delivery import Delivery
from hush_common.mqtt.inbox import Inbox


@pytest.mark.parametrize(
    ("topic", "promised", "kept"),
    [("tasks/a", True, False), ("tasks/a", False, False), ("reports/a", True, True), ("reports/a", False, False)],
)
def test_a_full_one_forgets_what_is_optional_or_promised_to_nobody_and_acknowledges_it(
    topic: str, promised: bool, kept: bool
) -> None:
    acknowledged = []
    inbox = Inbox(10, 100, ("tasks/",))
    for number in range(15):
        inbox.put(Delivery(topic, bytes(10), lambda number=number: acknowledged.append(number)), promised=promised)  # type: ignore[misc]
    assert len(inbox) == (15 if kept else 10)
    assert acknowledged == ([] if kept else [10, 11, 12, 13, 14])
    inbox.take(5)
    inbox.put(Delivery(topic, b"", list), promised=promised)
    assert len(inbox) == (11 if kept else 6)
