"""The storage in pages of flash, on a simulated flash that loses power at every byte; see flash_cuts.c."""

import json
import subprocess
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from zlib import decompress

import pytest
from port_programs import C_PORT, compiled

pytestmark = pytest.mark.large

MAIN = Path(__file__).parent / "flash_cuts.c"
SOURCE = C_PORT / "hush_flash.c"
SHARED = [str(C_PORT / "hush.c")]
"""What it uses of the port."""
GEOMETRIES = [(1, 1024, 2), (4, 1024, 3), (8, 1024, 2), (32, 2048, 2), (8, 512, 6)]
"""The unit, the bytes of a page, and the number of pages."""


def run(program: Path, mode: str, seed: int, operations: int, geometry: Sequence[int]) -> str:
    """What the program found wrong; nothing, if it found nothing."""
    command = [str(program), mode, str(seed), str(operations), *map(str, geometry)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode in {0, 1}, done.stderr[:2000]
    return done.stdout if done.returncode else ""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("flash"), main=MAIN, library=SOURCE, options=SHARED)


@pytest.mark.parametrize("geometry", [GEOMETRIES[0], GEOMETRIES[2], GEOMETRIES[4]])
def test_a_cut_at_any_byte_leaves_the_old_record_or_the_new_one(program: Path, geometry: tuple[int, int, int]) -> None:
    assert run(program, "cuts", 1, 4, geometry) == ""


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_long_life_with_many_cuts_loses_nothing(program: Path, geometry: tuple[int, int, int]) -> None:
    assert run(program, "runs", 1, 800, geometry) == ""


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_changed_byte_is_never_read_as_another_record(program: Path, geometry: tuple[int, int, int]) -> None:
    assert run(program, "rots", 1, 1, geometry) == ""


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("geometry", [*GEOMETRIES, (2, 512, 5), (16, 4096, 2)])
def test_cuts_and_damage_at_length(tmp_path: Path, geometry: tuple[int, int, int]) -> None:
    fast = compiled(tmp_path, main=MAIN, library=SOURCE, sanitized=False, options=SHARED)
    for seed in range(100, 112):
        assert run(fast, "cuts", seed, 60, geometry) == ""
        assert run(fast, "runs", seed, 40_000, geometry) == ""
        assert run(fast, "rots", seed, 20, geometry) == ""


FULL = Path(__file__).parent / "full_flash.c"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[int, ...]]:
    """Answered, sent, in the flash at the end, erases: of hourly rounds, some of them offline."""
    options = [*SHARED, str(C_PORT / "hush_device.c")]
    built = compiled(tmp_path_factory.mktemp("full"), main=FULL, library=SOURCE, sanitized=False, options=options)

    def live(kib: int, pages: int, rounds: int, offline: int) -> tuple[int, ...]:
        words = [str(built), str(1024 * kib), str(pages), str(rounds), str(offline)]
        run = subprocess.run(words, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout
        return tuple(map(int, run.stdout.split()))

    return live


@pytest.mark.parametrize(("kib", "pages"), [(4, 4), (8, 2), (2, 2)])
def test_kept_reports_give_way_to_new_answers(full: Callable[..., tuple[int, ...]], kib: int, pages: int) -> None:
    answered, sent, _, erases = full(kib, pages, 200, 0)
    assert (answered, sent) == (200, 200)
    assert erases <= 100 * pages, "half an erase of each page for an answer"


def test_a_day_without_a_network_fits_into_four_pages(
    full: Callable[..., tuple[int, ...]],
) -> None:
    """A full flash is found by `decide`: the program ends with an error if `answer` finds it."""
    assert full(4, 4, 24, 24)[0] == 24
    room = [full(4, pages, 100, 100)[0] for pages in (2, 3, 4, 5, 6)]
    assert all(more >= less + 10 for less, more in pairwise(room)), room
    answered, sent, _, _ = full(4, 4, 100, 60)
    assert 24 + 40 <= answered == sent < 100, "it answers again once there is a network"


ANSWERED = "13"
"""HUSH_ANSWERED"""
EARLIER = Path(__file__).parent / "earlier_flash.json"
"""Flashes that earlier_flash.c made with an earlier version of the port, whose log was in one page."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = [*SHARED, str(C_PORT / "hush_device.c")]
    main = EARLIER.with_suffix(".c")
    return compiled(tmp_path_factory.mktemp("earlier"), main=main, library=SOURCE, options=options)


@pytest.mark.parametrize("scenario", ["fresh", "sticky", "kept", "recalled"])
def test_a_state_of_an_earlier_version_is_read_as_it_is(earlier: Path, scenario: str) -> None:
    cells = decompress(b64decode(json.loads(EARLIER.read_text(encoding="utf-8"))[scenario]))
    run = subprocess.run([str(earlier), "read"], input=cells, capture_output=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[:2000]
    lines = [line.split() for line in run.stdout.decode().splitlines()]
    own = "sticky" if scenario == "sticky" else "plain"
    column = 3 if own == "sticky" else 2
    assert [line[column] for line in lines if line[0] == "round"] == [ANSWERED] * 8 + ["0"]
    spent = [line[1] for line in lines if line[0] == "spent"]
    assert spent == ["2/1" if own == "sticky" else "4/25", "109/50", "109/50"], "a round is 1/50, a memory 2"
    sent = [line[1] for line in lines if f"/{own}/" in line[0]]
    new = [frame for frame in sent if bytes.fromhex(frame) not in cells]
    earlier_frames = Counter(frame for frame in sent if frame not in new)
    assert len(set(new)) == 1, "every other report is the stored one"
    if scenario == "recalled":
        assert 0 < len(earlier_frames) < 8, "the recall goes on where it was"
    else:
        times = {"fresh": [2] * 8, "kept": [1] * 8, "sticky": []}[scenario]  # fresh: also recalled, of "plain" alone
        assert list(earlier_frames.values()) == times


MARK = "put_mark(medium, flash->page, r->next - medium->unit)"
MISTAKES = {
    "the mark is programmed before the record": (
        "cuts",
        "flash->must_move = true; /* until the record is whole */",
        f"flash->must_move = true; (void){MARK};",
    ),
    "a record has no checksum": ("cuts", "return same_head && get_32(bytes) == crc;", "(void)same_head; return true;"),
    "the page in use is erased": ("cuts", "return (flash->page + 1) % flash->medium->pages;", "return flash->page;"),
    "the oldest page is given up with its records": (
        "runs",
        "status = is_full ? HUSH_OK : HUSH_NONE;",
        "status = HUSH_NONE;",
    ),
    "damage is taken for a cut": ("rots", "return intact ? WHOLE : DAMAGED;", "return intact ? WHOLE : TORN;"),
}
"""Planted in the storage, each must be found: the mode, the right text and the wrong one."""


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_the_storage_is_found(mistake: tuple[str, str, str], tmp_path: Path) -> None:
    mode, right, wrong = mistake
    source = SOURCE.read_text(encoding="utf-8")
    assert source.count(right) == 1
    changed = tmp_path / SOURCE.name
    changed.write_text(source.replace(right, wrong), encoding="utf-8")
    program = compiled(tmp_path, main=MAIN, library=changed, sanitized=False, options=SHARED)
    operations = {"cuts": 20, "runs": 3000, "rots": 60}[mode]
    assert any(run(program, mode, 1, operations, geometry) for geometry in ((4, 512, 4), (32, 1024, 2)))
