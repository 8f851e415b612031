"""Topics are made and read in one place."""

import pytest

from hush_common import topics


def test_a_report_topic_leads_back_to_its_task() -> None:
    topic = topics.report_topic("heights", "device-7")
    assert topic == "hush/v1/reports/heights/device-7"
    assert topics.task_of_report_topic(topic) == "heights"
    assert topics.task_of_task_topic(topics.task_topic("heights")) == "heights"
    assert topics.recall_topic("heights") == "hush/v1/recalls/heights"
    assert topics.task_of_recall_topic(topics.recall_topic("heights")) == "heights"


def test_a_recall_topic_is_not_a_task_topic_nor_the_reverse() -> None:
    assert topics.task_of_task_topic(topics.recall_topic("heights")) is None
    assert topics.task_of_recall_topic(topics.task_topic("heights")) is None
    assert topics.task_of_recall_topic("hush/v1/recalls/a/b") is None


@pytest.mark.parametrize("sender", ["", "a/b", "+", "#", "a b", "$SYS", "é", "x" * 129, "a\n"])
def test_a_sender_that_would_break_out_of_its_level_is_refused(sender: str) -> None:
    assert not topics.is_sender(sender)
    with pytest.raises(ValueError, match="topic"):
        topics.report_topic("heights", sender)


def test_other_topics_are_not_report_topics() -> None:
    for topic in ("", "hush/v1/reports/a", "hush/v1/reports/a/b/c", "hush/v2/reports/a/b", "a/b/c/d/e"):
        assert topics.task_of_report_topic(topic) is None
