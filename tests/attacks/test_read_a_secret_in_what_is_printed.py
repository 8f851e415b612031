"""Whoever reads terminals, mails of cron, logs or files wants a password, or a value, that a command was told.

An unmistakable text stands in for the secret, in each place from which a command reads. Commands and options are those
of the tree that reads the command line: what a new option is told must not be repeated, unless it is listed here.
"""

import logging
import random
import struct
import traceback
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from typing import NoReturn

import pytest
from commands import EXIT_CODES, Option, Shown, commands
from inputs import CALLS, CELLS, CLOSED, FILES, NUMBER, SECRET, Call, call, example, leaks

from hush import HushError
from hush_aggregator.ops.watch.source import HttpUrl
from hush_aggregator.publish.webhook import Webhook
from hush_aggregator.store.location import parse_store
from hush_common.broker_url import BrokerUrl
from hush_common.domain import NumberDomain
from hush_common.errors import BrokerError

# Ctrl-C may be pressed while a weak reference is cleared, where Python can only say so; it is pressed again.
pytestmark = [
    pytest.mark.medium,
    pytest.mark.filterwarnings(r"ignore:[\s\S]*KeyboardInterrupt:pytest.PytestUnraisableExceptionWarning"),
]

COMMANDS = commands()

PUBLIC = {
    *("SCENARIO", "SWEEP", "FILE", "MECHANISM", "TASK"),  # names of what is asked, and of files
    *("--csv", "--column", "--task", "--store", "--state", "--out", "--password-file", "--ca", "--cert", "--key"),
    *("--name", "--device", "--user", "--forget", "--host", "--port", "--engine"),
    *("--clients", "--rounds", "--round", "--connections", "--seed", "--samples", "--confidence", "--timeout"),
    "--spread",
    *("--epsilon", "--max-epsilon", "--lifetime", "--total", "--shares", "--mechanism", "--people", "--error"),
    *("--delimiter", "--encoding", "--header", "--decimal", "--missing", "--fold-case"),  # of a file
    "--answer",  # to an exercise
    *("--domain", "--lower", "--upper", "--unit", "--labels", "--categories", "--coordinates"),
    *("DIRECTORY", "NAME", "--config", "--role", "--run-as", "--mosquitto", "--plugins", "--listen", "--queue"),
    *("--quota", "--gateway", "--keep", "--login-timeout", "--home-assistant-prefix"),
    *("--http", "--http-host", "--http-token-file", "--bind", "--token-file"),  # where, and names of files
    *("--trusted-proxy", "--http-trusted-proxy", "--root-path", "--http-root-path"),
    *("--frame-ancestors", "--http-frame-ancestors"),
    *("--admin-token-file", "--http-admin-token-file", "--audit-log", "--http-audit-log"),  # names of files
    *("--group", "--worker", "SOURCE", "TARGET"),  # names, and stores: see `test_in_no_address_of_a_database`
    *("--draw", "--workers", "--rerun", "--like", "--trials", "--theme", "--plot"),  # of the laboratory
    *("--device-user", "--device-password-file", "--clock"),
    *("--log-format", "--notify-secret-file", "--notify-precision"),
    "--inputs",  # of a function under test
    *("--topic", "--field", "--source-user", "--source-password-file", "--absent", "--max-age", "--wait"),  # of sensors
    *("--most-sensors", "--no", "--websockets", "--take-part", "--exclude", "--time-field", "--forget-after"),
    *("QUESTION", "--number", "--purpose", "--questions", "--until"),  # of a poll: everybody who answers sees them
    "--logins",  # the name of a file; its lines are not repeated: see `test_poll_logins.py`
    *("COMMAND", "--check", "--law", "--require", "--jobs", "--batch", "--seconds"),  # the name of a program under test
}
"""What a message may repeat. Anything else is a secret: VALUE, --broker (whose password stands anywhere in it where it
cannot be read), and all that a later version will add."""

HIDDEN_ADDRESSES = {
    "password": f"mqtt://alice:{{}}@{CLOSED}",
    "password of a WebSocket": f"ws://alice:{{}}@{CLOSED}/mqtt",
    "password under TLS": f"mqtts://alice:{{}}@{CLOSED}",
    "password with an @": f"mqtt://alice:{{}}@x@{CLOSED}",
    "password without a user": f"mqtt://:{{}}@{CLOSED}",
    "port": "mqtt://alice:pw@127.0.0.1:{}",
    "path": f"mqtt://{CLOSED}/{{}}",
    "query": f"mqtts://{CLOSED}?{{}}",
    "name in the query": f"mqtts://{CLOSED}?{{}}=1",
    "option that there is not": f"mqtts://{CLOSED}?password={{}}",
    "file without TLS": f"mqtt://{CLOSED}?ca={{}}",
    "file named twice": f"mqtts://{CLOSED}?ca={{}}&ca=x",
    "key without certificate": f"mqtts://{CLOSED}?key={{}}",
    "fragment": f"mqtt://{CLOSED}#{{}}",
    "no scheme": f"alice:{{}}@{CLOSED}",
    "no scheme, no login": "{}",
    "one slash": f"mqtt:/alice:{{}}@{CLOSED}",
    "no slash": f"mqtt:alice:{{}}@{CLOSED}",
    "another scheme": f"https://alice:{{}}@{CLOSED}",
    "scheme": f"{{}}://{CLOSED}",
    "no host": "mqtt://alice:{}",
    "nothing after the @": "mqtt://alice:{}@",
    "@ in the user": "mqtt://al@ice:{}@127.0.0.1:x",
    "? in the password": f"mqtt://alice:x?{{}}@{CLOSED}",
    "? after it": f"mqtt://alice:{{}}?x@{CLOSED}",
    "/ in the password": f"ws://alice:1/{{}}@{CLOSED}",
    "# in the password": f"mqtt://alice:x#{{}}@{CLOSED}",
    "line break": f"mqtt://alice:x\n{{}}@{CLOSED}",
    "escape": f"mqtt://alice:\x1b{{}}@{CLOSED}",
    "space": f"mqtt://alice:x {{}}@{CLOSED}",
    "bracket": "mqtt://[{}",
    "brackets": "mqtt://alice:{}@[x]:9",
    "another kind of letter": "mqtt://alice:{}@h\N{ACCOUNT OF}st",
}
SHOWN_ADDRESSES = {
    "user": f"mqtt://{{}}@{CLOSED}",
    "host": "mqtt://{}.example:9",
    "path of a WebSocket": f"ws://{CLOSED}/{{}}",
    "file under TLS": f"mqtts://{CLOSED}?ca={{}}",
}


def takers(flag: str) -> list[str]:
    return [name for name, options in COMMANDS.items() if any(option.flag == flag for option in options)]


def assert_hidden(one: Call, directory: Path, *secrets: str, stored: bool = False, patience: float = 120) -> Shown:
    """Call in a new directory below `directory`."""
    place = Path(mkdtemp(dir=directory))
    shown = call(one, place, stored=stored, patience=patience)
    assert shown.trouble == "", one
    assert shown.code in EXIT_CODES, one
    assert leaks(shown, place, one.files, *secrets) == [], one
    return shown


def test_every_command_has_a_legal_call_and_no_listed_option_is_gone() -> None:
    assert {one.command for one in CALLS} == set(COMMANDS)
    known = {option.flag for options in COMMANDS.values() for option in options}
    assert not PUBLIC - known


@pytest.mark.parametrize("command", COMMANDS)
def test_in_no_legal_call(command: str, tmp_path: Path) -> None:
    for one in CALLS:
        if one.command == command:
            assert_hidden(one, tmp_path, SECRET, *CELLS, stored=command == "report")


@pytest.mark.large
@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("command", COMMANDS)
def test_in_no_option_and_no_variable(command: str, memory_path: Path) -> None:
    for option in COMMANDS[command]:
        hide_in_option(command, option, memory_path)


def hide_in_option(command: str, option: Option, tmp_path: Path) -> None:
    for told in (SECRET, NUMBER, f"-{NUMBER}", f"{NUMBER}x"):
        secrets = () if option.flag in PUBLIC else (told.strip("-x"),)
        bare = example(command).without(option.flag)
        if option.width == 0:
            assert_hidden(bare.having(f"{option.flag}={told}", ""), tmp_path, told.strip("-x"))  # it takes no text
            continue
        one, stored = bare.having(option.flag, (told,) * option.width), command == "report"
        patience = 5 if option.flag == "--timeout" else 120  # it would wait for many years
        assert_hidden(one, tmp_path, *secrets, stored=stored, patience=patience)
        if option.variable is not None:
            one = replace(bare, environment={option.variable: told})
            assert_hidden(one, tmp_path, *secrets, stored=stored)


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "conform"])  # which takes any number
def test_in_no_argument_too_many(command: str, memory_path: Path) -> None:
    arguments = {option.flag: "x" for option in COMMANDS[command] if option.is_argument}
    for extra in ((SECRET,), ("--pasword", SECRET), (f"--pasword={SECRET}",), ("-p", SECRET)):
        one = replace(example(command), given={**arguments, **example(command).given, "EXTRA": extra})
        assert assert_hidden(one, memory_path, SECRET).code == 2, extra


DATABASES = [
    f"postgresql://alice:{{}}@{CLOSED}/hush",
    f"postgresql://alice:{{}}@{CLOSED}/hush?schema={{}}",
    f"postgresql://{CLOSED}/hush?password={{}}",
    f"postgresql://alice:{{}}@{CLOSED}",
    f"postgresql://al:ice:{{}}@{CLOSED}:x/hush",
    f"postgres://alice:{{}}@{CLOSED}/hush?nonsense=1",
    "postgresql://[alice:{}",
    f"postgresql://alice:x@{{}}x@{CLOSED}/hush",
    f"postgresql://alice:x/{{}}@{CLOSED}/hush",
    f"postgresql://alice:1?{{}}@{CLOSED}/hush",
    f"postgresql://alice:1#{{}}@{CLOSED}/hush",
    f" postgresql://alice:{{}}@{CLOSED}/hush",
    f"postgresql+psycopg://alice:{{}}@{CLOSED}/hush",
    f"mysql://alice:{{}}@{CLOSED}/hush",
    f"postgresql/alice:{{}}@{CLOSED}/hush",
    f"alice:{{}}@{CLOSED}/hush",
    "host=127.0.0.1 user=alice password={} dbname=hush",
    "Server=127.0.0.1;Password={};Database=hush",
]


@pytest.mark.parametrize(
    ("command", "flag"),
    [("ledger", "--state"), ("report", "--state"), ("store backup", "FILE"), ("store restore", "FILE")],
)
@pytest.mark.parametrize("address", [f"postgresql://al:{SECRET}@h/x", f"host=h password={SECRET}", f"al:{SECRET}@h"])
def test_in_no_address_in_the_place_of_a_file(command: str, flag: str, address: str, tmp_path: Path) -> None:
    assert assert_hidden(example(command).having(flag, address), tmp_path, SECRET).code in {1, 2}
    assert not [path for path in tmp_path.rglob("*") if SECRET in path.name]


@pytest.mark.parametrize("option", ["--http", "--http-host", "--http-trusted-proxy", "--http-root-path"])
def test_in_no_address_to_listen_on(option: str, tmp_path: Path) -> None:
    one = example("serve").having("--http", "127.0.0.1:0").having(option, f"al:{SECRET}@127.0.0.1:80")
    assert assert_hidden(one, tmp_path, SECRET).code == 2


FORMS = [
    "{scheme}://alice:{secret}@{host}/hush",
    "{scheme}://alice:{secret}@{host}",
    "{scheme}://:{secret}@{host}/hush?schema=own",
    "{scheme}://alice:{secret}@/hush",
    "{scheme}://alice:{secret}@",
    "{scheme}:/alice:{secret}@{host}/hush",
    "{scheme}:alice:{secret}@{host}/hush",
    "{scheme}//alice:{secret}@{host}/hush",
    "{scheme}://{host}/hush?password={secret}",
    "{scheme}://{host}/hush;password={secret}",
    "{scheme}://{host}?pasword={secret}",
    "jdbc:{scheme}://{host}/hush?user=alice&password={secret}",
    "alice:{secret}@{host}/hush",
    "host={host} user=alice password={secret} dbname=hush",
    "host = {host} password = '{secret}'",
    "Driver={{PostgreSQL}};Server={host};Pwd={secret}",
]
SCHEMES = ["postgresql", "postgres", "POSTGRESQL", "postgresql+psycopg", "mysql"]
SCHEMES += ["mqtt", "mqtts", "MQTT", "http", "https"]
HOSTS = ["db.example", "db.example:5432", "[::1]:5432", "::1", "db.example:x", "[::1", "a,b:5432", ""]


def secret_of(rng: random.Random) -> str:
    """A password as people choose them, and as they write it into an address: not encoded."""
    return "".join(rng.choice("qxzjwvkQXZJWVK7777/@#?%:&;=+ []!'") for _ in range(12))


def told_of(read: Callable[[str], object], text: str) -> str:
    """All that may be printed of an address: what was made of it, or the error with all that led to it."""
    try:
        found = read(text)
    except HushError as error:
        trace: BaseException | None = error
        said = traceback.format_exc()
        while trace is not None:
            said += f"{trace!r} {trace}"
            trace = trace.__cause__ or trace.__context__
        return said
    return f"{found} {found!r}"


def pieces(secret: str, text: str) -> list[str]:
    return [secret[place : place + 4] for place in range(len(secret) - 3) if secret[place : place + 4] in text]


@pytest.mark.large
def test_in_no_piece_of_four_letters_whatever_is_wrong_with_the_address(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("whsec_" + "A" * 32 + "\n", encoding="ascii")
    readers: list[Callable[[str], object]] = [parse_store, BrokerUrl.parse, HttpUrl, lambda text: Webhook(text, key)]
    outcomes = set()
    for number in range(1500):
        rng = random.Random(number)  # noqa: S311 - repeatable
        secret = secret_of(rng)
        form = rng.choice(FORMS).format(scheme=rng.choice(SCHEMES), host=rng.choice(HOSTS), secret=secret)
        text = rng.choice(["", "", "", " ", "\t"]) + form
        for read in readers:
            said = told_of(read, text)
            outcomes.add((read, "Error" in said))
            assert pieces(secret, said.replace(str(tmp_path), "")) == [], (text, said)
    assert {(read, True) for read in readers} <= outcomes
    assert {(read, False) for read in (parse_store, BrokerUrl.parse)} <= outcomes  # they have taken some


@pytest.mark.medium
@pytest.mark.parametrize("command", [*takers("--store"), "store copy"])
def test_in_no_address_of_a_database(command: str, tmp_path: Path) -> None:
    names = ["SOURCE", "TARGET"] if command == "store copy" else ["--store"]
    for name in names:
        for address in DATABASES:
            one = example(command).having(name, address.replace("{}", SECRET))
            assert assert_hidden(one, tmp_path, SECRET).code in {0, 1, 2}, address


@pytest.mark.large
@pytest.mark.parametrize("command", takers("--broker"))
def test_in_no_address_that_stands_where_another_thing_belongs(command: str, tmp_path: Path) -> None:
    for option in COMMANDS[command]:
        for address in (
            f"mqtt://alice:{SECRET}@{CLOSED}",
            f"mqtt://alice:a/{SECRET}@b@h",
            f"ws://:{SECRET}@{CLOSED}/x",
        ):
            if option.width and option.flag not in {"--inputs", "--user", "--source-user"}:
                assert_hidden(example(command).having(option.flag, address), tmp_path, SECRET)


@pytest.mark.large
@pytest.mark.parametrize("command", takers("--broker"))
def test_in_no_part_of_an_address(command: str, memory_path: Path) -> None:
    for form, secret in product(HIDDEN_ADDRESSES.values(), (SECRET, NUMBER)):
        told = example(command).having("--broker", form.format(secret))
        assert_hidden(told, memory_path, secret)
        if command == "simulate":
            assert_hidden(told.having("--engine", "mqtt"), memory_path, secret)
        else:
            variable = {"HUSH_BROKER": form.format(secret)}
            assert_hidden(replace(told.without("--broker"), environment=variable), memory_path, secret)


@pytest.mark.parametrize("command", takers("--broker"))
def test_but_what_is_no_secret_is_found_in_the_message(command: str, tmp_path: Path) -> None:
    name = SECRET.lower()  # as a host is written
    for place, form in SHOWN_ADDRESSES.items():
        one = example(command).without("--user").without("--password-file").having("--broker", form.format(name))
        one = one.having("--engine", "mqtt") if command == "simulate" else one
        directory = tmp_path / place
        directory.mkdir()
        found = leaks(call(one, directory), directory, one.files, name)
        assert {f"{name} in {where}" for where in ("err", "log", "out")} & set(found), (
            place
        )  # doctor prints what it finds


PASSWORDS = {
    "first line": b"%b\n",
    "second line": b"pw\n%b\n",
    "no text": b"\xff%b\n",
    "with a null": b"x\0%b",
    "with an escape": b"\x1b[2J%b\r\n",
    "of another encoding": "\ufeff{}".encode("utf-16"),
    "too long for MQTT": b"%b" * 10_000,
}


@pytest.mark.large
@pytest.mark.parametrize("command", takers("--password-file"))
def test_in_no_file_of_a_password(command: str, memory_path: Path) -> None:
    for user, content in product(("", "alice", "al ice"), PASSWORDS.values()):
        text = content.replace(b"%b", SECRET.encode())
        one = example(command).having("--broker", f"mqtt://{CLOSED}").having("--password-file", "password")
        one = one.having("--user", user) if user else one.without("--user")
        assert_hidden(replace(one, files={**FILES, "password": text}), memory_path, SECRET)


TYPED = {
    "legal": b"%b\n",
    "without an end": b"%b",
    "negative": b"-%b\n",
    "with letters": b"%bx\n",
    "of two numbers": b"1,%b\n",
    "of words": b"x %b y\n",
    "no text": b"\xff%b\n",
    "with a null": b"\0%b\n",
    "with an escape": b"\x1b[2J%b\n",
    "on the second line": b"1\n%b\n",
    "long": b"%b" * 200_000,
}


@pytest.mark.large
@pytest.mark.parametrize("task", ["sum", "vote", "way", "pair", "unheard-of", "no id"])
def test_in_no_standard_input(task: str, memory_path: Path) -> None:
    for typed, stored in product(TYPED.values(), (False, True)):
        one = example("report").having("TASK", task).having("VALUE", "-").having("--timeout", "0.02")
        one = replace(one, typed=typed.replace(b"%b", NUMBER.encode()))
        assert_hidden(one, memory_path, NUMBER, stored=stored)


CELL_TABLES = {
    "no number": f"who,income\na,1\nb,{SECRET}{NUMBER}\n",
    "number with a unit": f"who,income\na,1\nb,{NUMBER} EUR\n",
    "another decimal point": f'who,income\na,"{NUMBER},5"\n',
    "infinite": f"who,income\na,{NUMBER}e999\n",
    "no number in its column": f"who,income\na,\n{NUMBER},\n",
    "in a long row": f"who,income\na,x,{NUMBER}\n",
    "after a quote that stays open": f'who,income\na,"{NUMBER}\nb,2\n',
    "with a null": f"who,income\na,{NUMBER}\0\n",
    "with an escape": f"who,income\na,\x1b{NUMBER}\n",
    "no text": f"who,income\na,{NUMBER}\udcff\n",
    "without a header": f"a,{NUMBER}\nb,1\n",
    "without a header or another column": f"{NUMBER}\n1\n",
    "outside the bounds": f"who,income\na,-{NUMBER}\nb,5\nc,6\n",
    "in a long field": f"who,income\na,{NUMBER}{'1' * 200_000}\n",
}


@pytest.mark.large
@pytest.mark.parametrize(
    "kind", [{"--lower": "0", "--upper": "10"}, {"--labels": "a,b"}, {"--yes": "x"}, {"SCENARIO": "survey"}, {}]
)
def test_in_no_cell(kind: dict[str, str], memory_path: Path) -> None:
    columns: tuple[dict[str, str], ...] = ({}, {"--column": "income"}, {"--column": "wage"})
    for table, column in product(CELL_TABLES.values(), columns):
        files = {**FILES, "people.csv": table.encode("utf-8", "surrogateescape")}
        given = {**kind, "--csv": "people.csv", **column, "--engine": "memory", "--seed": "7", "--json": ""}
        assert_hidden(Call("simulate", given, files=files), memory_path, NUMBER, SECRET)
        if not column:
            given = {"SCENARIO": "own.toml", "--engine": "memory"}
            assert_hidden(Call("simulate", given, files=files), memory_path, NUMBER, SECRET)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        *(("task check", "FILE"), ("task publish", "FILE"), ("serve", "--task"), ("audit", "--task")),
        *(("simulate", "SCENARIO"), ("simulate", "--csv"), ("serve", "--store"), ("report", "--ca")),
    ],
)
def test_in_no_file_that_was_named_by_mistake(command: str, flag: str, memory_path: Path) -> None:
    one = example(command).without("MECHANISM").without("--epsilon").having(flag, "./task.toml")
    one = one.having("--broker", f"mqtts://{CLOSED}") if flag == "--ca" else one
    if flag == "--csv":
        one = one.having("--lower", "0").having("--upper", "1").having("--column", "income")
    for content in ("{}\n", "{}", "x {}", "{}: y", '"{}', "\x1b{}", "\\{}", "'{}' = 1 1"):
        text = content.replace("{}", SECRET).encode()
        assert_hidden(Call(command, one.given, files={**FILES, "task.toml": text}), memory_path, SECRET)


@pytest.mark.large
@pytest.mark.parametrize("kind", [{"--lower": "0", "--upper": "1e10"}, {"--labels": ",".join(CELLS)}], ids=str)
def test_in_nothing_that_a_simulation_keeps(kind: dict[str, str], tmp_path: Path) -> None:
    given = {"--csv": "people.csv", "--column": "income", **kind, "--engine": "memory", "--out": "out", "--seed": "7"}
    one = Call("simulate", {**given, "--deterministic-noise": ""})
    shown = call(one, tmp_path, patience=240)
    assert shown.code == 0
    kept = {path.name for path in (tmp_path / "out").iterdir()}
    assert kept == {"result.json", "reports.csv", "result.png", "result.svg", "run.json"}
    if "--labels" not in kind:  # which a person states, and which the table counts
        assert leaks(shown, tmp_path, one.files, *CELLS) == []


# Planted: each of these leaks has to be found, or the tests above could not fail.


def test_an_address_that_a_message_repeats_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> NoReturn:
        raise BrokerError("broker", f"{text.partition('//')[2].replace('@', ' ')} is no address")  # no login to mask

    monkeypatch.setattr(BrokerUrl, "parse", refuse)
    one = example("serve")
    assert leaks(call(one, tmp_path), tmp_path, one.files, SECRET) == [f"{SECRET} in err"]


@pytest.mark.parametrize("secret", [SECRET, NUMBER])
def test_a_value_that_is_logged_at_any_level_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    def parse(_domain: object, text: str) -> NoReturn:
        logging.getLogger("hush_client.somewhere").debug("read x%sy", text)
        raise KeyboardInterrupt  # nothing is left to wait for

    monkeypatch.setattr(NumberDomain, "parse", parse)
    one = replace(example("report").having("VALUE", "-").having("--timeout", "60"), typed=secret.encode())
    assert leaks(call(one, tmp_path, stored=True), tmp_path, one.files, secret) == [f"{secret} in log"]


def test_a_number_that_is_kept_in_another_writing_is_found(tmp_path: Path) -> None:
    one, number = example("plan"), int(NUMBER)
    shown = call(one, tmp_path)
    assert leaks(shown, tmp_path, one.files, NUMBER) == []
    texts = [
        format(float(number) if style in ("e", ".1f") else number, style) for style in ("d", ",", "_", "e", ".1f", "x")
    ]
    kept = [text.encode() for text in texts] + [
        struct.pack(f"{order}{kind}", number) for order in "<>" for kind in "dq"
    ]
    for content in kept:
        (tmp_path / "kept").write_bytes(b"x" + content)
        assert leaks(shown, tmp_path, one.files, NUMBER) == [f"{NUMBER} in kept"], content
