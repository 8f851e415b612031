"""Documents that others wrote are checked before a parser runs: JSON and TOML."""

import json
import random
import tomllib
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from hush_common.untrusted import (
    DRAFT,
    ESTIMATE,
    KEY_PARTS,
    NUMBER_CHARACTERS,
    SCENARIO,
    TASK,
    DocumentLimits,
    is_printable,
    read_file,
    read_json,
    read_toml,
)

SMALL = DocumentLimits(1000, 3, 5)
HOSTILE = {
    "a dotted key": "a" + ".b" * 60_000 + "=1",
    "a dotted key of texts": '"a"' + '."b"' * 30_000 + "=1",
    "a dotted key of texts with quotes": '"\\""' + ' . "\\""' * 15_000 + "=1",
    "a dotted header": "[a" + ".b" * 60_000 + "]",
    "a dotted key in a table": "x={a" + ".b" * 60_000 + "=1}",
    "brackets": "a=" + "[" * 60_000,
    "braces": "a=" + "{a=" * 40_000,
    "tables": "\n".join(f"[a.b{i}]" for i in range(9000)),
    "a number": "a=" + "1" * 100_000,
    "texts without an end": 'a="' + '\\"' * 60_000,
    "many texts without an end": '"\n' * 60_000,
    "a text of several lines without an end": 'a="""' + '""x' * 40_000,
    "a word": "a" * 130_000,
    "words": "a " * 65_000,
}


@pytest.mark.medium
def test_the_dotted_keys_that_took_gigabytes_take_no_memory() -> None:
    for name, text in HOSTILE.items():
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"line 1|many|Unterminated|Illegal|Expected"):
            read_toml(text, DRAFT)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4_000_000, name  # 14 GB for the first of them


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a = 1\n" + ".".join("b" * (KEY_PARTS + 1)) + " = 1", "line 2 .* 8 parts"),
        ("a = [[[[1]]]]", "line 1 .* 3 brackets"),
        ("a=1\nb=1\nc=1\nd=1\n[e]\nf=1", "6 keys .* 5"),
        (f"a = {'1' * (NUMBER_CHARACTERS + 1)}", "line 1 .* 100 characters"),
        ("a = '\u202e'", r"line 1 .*U\+202E"),
        ("a = 1\r\n\nb = '\x9b'", r"line 3 .*U\+009B"),
        ("#" + "é" * 500, "1000 bytes"),
        ("a = ", "Invalid value"),
    ],
)
def test_a_toml_document_beyond_a_limit_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_toml(text, SMALL)


@pytest.mark.parametrize(
    "text",
    [
        ".".join("b" * KEY_PARTS) + " = 1",
        "a = [[[1]]]",
        "a=1\nb=1\nc=1\n[e]\nf=1",
        f"a = {'1' * NUMBER_CHARACTERS}",
        "# " + "[" * 100 + " = a.b.c.d.e.f.g.h.i.j \u202e",
        'a = "[[[[ = = = = = = a.b.c.d.e.f.g.h.i.j \\u202E"',
        "a = '[[[[ = = = = = = a.b.c.d.e.f.g.h.i.j'",
        'a = """\n"" [[[[ \\" = = = = = \\\\""" # """',
        "a = '''\n'' [[[[ \\ = = = = = '''''",
        'a = """"""',
        'a = ""\nb = [""]',
    ],
)
def test_the_limits_of_toml_do_not_count_texts_and_comments(text: str) -> None:
    assert read_toml(text, SMALL) == tomllib.loads(text)


def some_toml(source: random.Random) -> tuple[str, int]:
    """A legal document, and how many brackets it has open at most; its texts and comments are full of brackets."""
    inside = "".join(source.choice("[]{}=#.'\" ab\\") for _ in range(source.randrange(12)))
    basic = inside.replace("\\", "\\\\").replace('"', '\\"')
    texts = [f'"{basic}"', f'"""\n{basic}\n"" """', f'"""{basic}"""""', "'" + inside.replace("'", "") + "'"]
    texts.append("'''\n" + inside.replace("'", "") + "'' '''")
    value, depth = source.choice(texts), source.randrange(6)
    for _ in range(depth):
        value = source.choice([f"[{value}]", f"[ {value}, # {inside}\n ]", f"[{source.choice(texts)}, {value}]"])
    return f"# {inside}\na = {value} # {inside}\n", depth


def test_brackets_are_counted_where_the_parser_sees_them() -> None:
    source = random.Random(3)  # noqa: S311 - a test wants the same documents every time
    for _ in range(1000):
        text, depth = some_toml(source)
        if depth > SMALL.depth:
            with pytest.raises(ValueError, match="brackets open"):
                read_toml(text, SMALL)
        else:
            assert read_toml(text, SMALL), text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[[[1]]]]", "line 1 .* 3 brackets"),
        ('{"a":1,\n"a":2}', "'a' .*twice"),
        (json.dumps(dict.fromkeys("abcdef")), "6 keys .* 5"),
        ("\n" + "1" * (NUMBER_CHARACTERS + 1), "line 2 .* 100 characters"),
        ('"\u202e"', r"line 1 .*U\+202E"),
        ("\ufeff{}", r"U\+FEFF"),
        (" " * 1001, "1000 bytes"),
        ("NaN", "NaN"),
        ("{", "Expecting"),
        ('"' + '\\"' * 400, "Unterminated"),
    ],
)
def test_a_json_document_beyond_a_limit_is_refused(text: str, complaint: str) -> None:
    for payload in (text, text.encode()):
        with pytest.raises(ValueError, match=complaint):
            read_json(payload, SMALL)


def test_the_limits_of_json_do_not_count_texts() -> None:
    text = '{"a":[["]]]]\\"[[[[:::::::",' + "1" * NUMBER_CHARACTERS + '],"\\u202e"],"b":null}'
    assert read_json(text, SMALL) == {"a": [[']]]]"[[[[:::::::', int("1" * NUMBER_CHARACTERS)], "\u202e"], "b": None}


@pytest.mark.parametrize("text", ['"\\u0041"', '"a\\n"', '"\\/"', '{"a":null}', '"\\\\\\u0041"'])
def test_what_hush_never_publishes_is_refused_in_a_task_alone(text: str) -> None:
    read_json(text, TASK)
    with pytest.raises(ValueError, match=r"escape|null"):
        read_json(text, TASK, published=True)
    assert read_json('"\\"\\\\u0041"', TASK, published=True) == '"\\u0041'


def test_a_million_characters_are_checked_before_the_test_times_out() -> None:
    """The square of a million takes an hour."""
    for text in ("[" + '"\\"",' * 150_000 + "0]", '"' + "\\\\" * 500_000, "[" + "1," * 500_000 + "1]", '"a' * 500_000):
        with suppress(ValueError):
            read_json(text, ESTIMATE)


def test_no_more_of_a_file_is_read_than_a_document_may_have(tmp_path: Path) -> None:
    (tmp_path / "fits").write_bytes(b" " * SMALL.bytes)
    assert len(read_file(tmp_path / "fits", SMALL)) == SMALL.bytes
    with pytest.raises(ValueError, match="1000 bytes"):
        read_file(Path("/dev/zero"), SMALL)
    with pytest.raises(ValueError, match="codec can't decode"):
        (tmp_path / "fits").write_bytes(b"\xff") and read_file(tmp_path / "fits", SMALL)


def test_controls_and_the_direction_of_letters_are_not_printable() -> None:
    for low, high in ((0, 0x20), (0x7F, 0xA1), (0x200B, 0x2010), (0x202A, 0x202F)):
        assert not any(is_printable(f"a{chr(at)}b") for at in range(low, high))
    assert is_printable("Größe 身長 पुरुष 👩 ~!")


@pytest.mark.medium
def test_a_character_that_python_can_print_is_printable() -> None:
    """Each version of Python has its own Unicode: what none has as a control, a format or private use is printable."""
    differing = [at for at in range(0x110000) if chr(at).isprintable() and not is_printable(chr(at))]
    assert differing == []


@pytest.mark.medium
def test_a_scenario_may_have_more_than_a_task() -> None:
    text = "values = [" + "1.5, " * 40_000 + "]"
    assert len(read_toml(text, SCENARIO)["values"]) == 40_000  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bytes"):
        read_toml(text, DRAFT)
