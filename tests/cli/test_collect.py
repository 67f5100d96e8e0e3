"""What is recorded: enough mistaken objects to learn to read, where there is something to read."""

from collections import Counter

from embodied_rm.cli.commands.collect import failing_kinds

KINDS = ("success", "stall", "drop", "wrong_object")


def test_every_other_failure_mistakes_an_object_that_the_instruction_names() -> None:
    assert failing_kinds(KINDS, names_object=True) == ("wrong_object", "stall", "wrong_object", "drop")


def test_without_a_named_object_all_failures_are_as_frequent() -> None:
    assert Counter(failing_kinds(KINDS, names_object=False)) == {"stall": 1, "drop": 1, "wrong_object": 1}
