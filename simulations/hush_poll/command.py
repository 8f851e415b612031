"""`hush poll`: ask the people in a room, each of whom answers with a phone that adds noise."""

import asyncio
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import segno

from hush_aggregator.store.location import parse_store, store_file
from hush_common.broker_url import BrokerUrl, is_loopback
from hush_common.errors import BrokerError, OptionError, TaskError, printable, shown
from hush_common.options import OUTPUT, Argument, Commands, Login, Option
from hush_common.output import OutputLostError, files_first, flush_output, print_json
from hush_common.task import parse_interval
from hush_common.terminal import note, show
from hush_poll.questions import (
    DEFAULT_EPSILON,
    LARGEST_EPSILON,
    RELEASE_FROM,
    Questions,
    labels_domain,
    make_question,
    number_domain,
    read_questions,
)
from hush_poll.result import blocks, write_documents, write_pictures
from hush_poll.scripts import digest
from hush_poll.session import Answered, Opened, PollSettings, Until, run_poll
from hush_simulations.commands.options import ThemeOption, check_theme, run_to_end
from hush_simulations.display.files import prepare

PORT = 8642
_QUESTION, _NETWORK = "Question", "Network"
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_MOST_ANSWERS = 1_000_000

app: Commands = Commands()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """What is asked."""

    question: Annotated[str, Argument(metavar="[QUESTION]", help="One line; with --number, --yes-no or --labels.")] = ""
    number: Annotated[
        tuple[str, str, str] | None,
        Option(
            group=_QUESTION,
            metavar="LOWER UPPER UNIT",
            help='The answer is a number, as --number 0 14 h; "" for no unit.',
        ),
    ] = None
    yes_no: Annotated[bool, Option("--yes-no", group=_QUESTION, help="The answer is yes or no.")] = False
    labels: Annotated[str | None, Option(group=_QUESTION, metavar="A,B,C", help="The answer is one of these.")] = None
    epsilon: Annotated[
        str | None,
        Option(
            group=_QUESTION,
            metavar="E",
            help=f"How much an answer may give away, at most {LARGEST_EPSILON}; {DEFAULT_EPSILON} without it.",
        ),
    ] = None
    purpose: Annotated[
        str,
        Option(
            group=_QUESTION, metavar="TEXT", help="Why it is asked. Phones limit what they give away for a purpose."
        ),
    ] = ""
    questions: Annotated[
        Path | None,
        Option(group=_QUESTION, metavar="FILE", help="A TOML file with several questions, in place of QUESTION."),
    ] = None

    def read(self) -> Questions:
        """Return the questions, of the options or of a file."""
        kinds = {"--number": self.number, "--yes-no": self.yes_no, "--labels": self.labels}
        given = [option for option, value in kinds.items() if value]
        if self.questions is not None:
            if self.question or given or self.epsilon or self.purpose:
                raise OptionError("--questions", "a file has everything about its questions; leave the others out")
            return read_questions(self.questions)
        if not self.question:
            raise OptionError(
                "QUESTION", 'is missing; write for example "How many hours did you sleep?" --number 0 14 h'
            )
        if len(given) != 1:
            raise OptionError(
                "--number",
                "a question has one kind of answer; write --number LOWER UPPER UNIT, --yes-no or --labels A,B",
            )
        domain: dict[str, object] = {"kind": "bit"}
        if self.number is not None:
            domain = number_domain(*self.number)
        elif self.labels is not None:
            domain = labels_domain(self.labels)
        try:
            return Questions([make_question(self.question, domain, self.epsilon or DEFAULT_EPSILON, self.purpose)])
        except TaskError as error:
            option = {"epsilon": "--epsilon", "purpose": "--purpose", "title": "QUESTION"}.get(error.field, given[0])
            raise OptionError(option, str(error).removeprefix(f"{error.field}: ")) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """A real broker, in place of the embedded one."""

    broker: Annotated[
        str | None,
        Option(
            group=_NETWORK,
            metavar="URL",
            help="A real broker, such as mqtts://aggregator@host, in place of the embedded one.",
        ),
    ] = None
    websocket: Annotated[
        str | None,
        Option(
            group=_NETWORK, metavar="URL", help="Where phones reach that broker: wss://[user[:password]@]host:port."
        ),
    ] = None
    logins: Annotated[
        Path | None, Option(metavar="FILE", help="Lines with user:password for that broker; each phone gets its own.")
    ] = None
    login: Login

    def addresses(self) -> tuple[BrokerUrl | None, BrokerUrl | None]:
        """Return the addresses for the aggregator and for phones; None for the embedded broker."""
        if self.broker is None:
            user, file = self.login.user, self.login.password_file
            others = {
                "--websocket": self.websocket,
                "--logins": self.logins,
                "--user": user,
                "--password-file": file,
            }
            for option, given in others.items():
                if given:
                    raise OptionError(option, "is for a real broker; name that with --broker")
            return None, None
        phones = self._phones()
        try:
            return self.login.at(self.broker), phones
        except BrokerError as error:
            raise OptionError("--broker", str(error)) from None

    def _phones(self) -> BrokerUrl:
        if self.websocket is None:
            raise OptionError("--websocket", "where do phones reach that broker? Write --websocket wss://host:port")
        try:
            phones = BrokerUrl.parse(self.websocket)
        except BrokerError as error:
            raise OptionError("--websocket", str(error)) from None
        if phones.path is None:
            raise OptionError("--websocket", "browsers speak MQTT over WebSockets only; write wss:// or ws://")
        if phones.cert is not None:
            raise OptionError("--websocket", "a page cannot show a certificate; leave cert out, and give a password")
        if self.logins is not None and phones.user is not None:
            raise OptionError("--logins", "gives each phone a user; leave the one in --websocket out")
        return phones


@app.command()
def poll(
    *,
    about: QuestionOptions,
    until: Annotated[
        str | None,
        Option(
            group=_QUESTION,
            metavar="WHEN",
            help="Close a question after so many answers (30), a time (20m), or at a clock time (14:30).",
        ),
    ] = None,
    bind: Annotated[
        str,
        Option(
            group=_NETWORK,
            metavar="ADDRESS",
            help="Of the network interface; all of them without it. 127.0.0.1: only this machine.",
        ),
    ] = "",
    port: Annotated[int, Option(group=_NETWORK, min=0, max=65535, help="Of the pages; 0 takes a free one.")] = PORT,
    is_open: Annotated[
        bool,
        Option("--open", group=_NETWORK, help="Let everybody in the network answer, without the code in the address."),
    ] = False,
    store: Annotated[
        str | None, Option(metavar="FILE", help="Keep what is counted in this SQLite file, and continue from it.")
    ] = None,
    real: BrokerOptions,
    quota: Annotated[
        int | None,
        Option(metavar="N", min=1, help="Answers of one sender to a question that count; 1 with --logins."),
    ] = None,
    out: Annotated[
        Path | None, Option(group=OUTPUT, metavar="DIR", help="Write the results there, as JSON and as pictures.")
    ] = None,
    theme: ThemeOption = None,
    as_json: Annotated[
        bool, Option("--json", group=OUTPUT, help="Print one JSON object with the results at the end.")
    ] = False,
) -> None:
    """Ask a class or a meeting: phones answer with noise, in the browser, over the local network.

    It starts a broker, an aggregator, the page for phones and a screen for the audience, and prints the address with a
    QR code. No estimate is shown below 10 answers. Ctrl-C ends the poll and prints the result.

    The network is not encrypted, and this command serves the script that adds the noise: docs/poll.md says what that
    means.
    """
    check_theme(theme, out)
    settings = PollSettings(
        about.read(),
        _until(until),
        is_open,
        _bind(bind),
        port,
        None if store is None else store_file(parse_store(store), "hush poll counts into a SQLite file; name one"),
        *real.addresses(),
        real.logins,
        1 if quota is None and real.logins is not None else quota,
    )
    stop, forward = asyncio.Event(), asyncio.Event()
    directory = None if out is None else prepare(out)
    lost: list[OutputLostError] = []

    def finish(ended: list[Answered]) -> None:
        try:
            with files_first(directory, lambda place: write_documents(ended, place)):
                _print(ended, as_json=as_json)
        except OutputLostError as error:  # the pictures are still to be written
            lost.append(error)

    ended = run_to_end(
        run_poll(settings, stop, forward, lambda opened: _announce(opened, settings, forward), finish), stop
    )
    for path in () if directory is None else write_pictures(ended, directory, theme or "light"):
        note(f"wrote {path}")
    for error in lost:
        raise error


def _print(ended: list[Answered], *, as_json: bool) -> None:
    if as_json:
        results = [one.result.to_document() | {"answers": one.answers} for one in ended]
        print_json({"v": 1, "results": results})
    else:
        show(blocks(ended))
    flush_output()


def _until(text: str | None) -> Until:
    if text is None:
        return Until()
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        now = datetime.now().astimezone()
        at = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        return Until(at=at if at > now else at + timedelta(days=1))
    if text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= _MOST_ANSWERS and len(text) < len("12345678"):
        return Until(answers=int(text))
    try:
        return Until(after=parse_interval(text, "--until"))
    except TaskError:
        raise OptionError(
            "--until",
            f"{printable(text[:40])!r} is not an end; write answers (30), a time (20m) or a clock time (14:30)",
        ) from None


def _bind(text: str) -> str:
    try:
        return str(ip_address(text)) if text else ""
    except ValueError:
        raise OptionError(
            "--bind", f"{shown(text)} is not an address of this machine; write for example 192.168.1.20"
        ) from None


def _announce(opened: Opened, settings: PollSettings, forward: asyncio.Event) -> None:
    if sys.stderr.isatty():
        segno.make(opened.address, error="m", micro=False).terminal(sys.stderr, compact=True)
    note(f"phones:  {opened.address}")
    note(f"screen:  {opened.screen}")
    note(f"scripts: SHA-256 {digest()}")
    if not (settings.bind and is_loopback(settings.bind)):
        note("WARNING: this network is not encrypted: others in it can see who answers, and could change the page")
    if settings.is_open:
        note("WARNING: everybody who reaches this address may answer, and as often as they like")
    if settings.questions.in_turn:
        _read_lines(forward)
        note("Enter asks the next question")
    note(f"no estimate is shown below {RELEASE_FROM} answers; Ctrl-C ends the poll")


def _read_lines(forward: asyncio.Event) -> None:
    """Set the event at each line of standard input."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if sys.stdin.readline():
            forward.set()
        else:
            loop.remove_reader(sys.stdin)

    with suppress(NotImplementedError, OSError, ValueError):  # Windows; a file; none
        loop.add_reader(sys.stdin, read)
