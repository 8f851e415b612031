"""The storage in two pages of flash, on a simulated flash that loses power at every byte; see flash_cuts.c."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from port_programs import C_PORT, compiled

pytestmark = pytest.mark.slow

MAIN = Path(__file__).parent / "flash_cuts.c"
SOURCE = C_PORT / "hush_flash.c"
SHARED = [str(C_PORT / "hush.c")]
"""What it uses of the port."""
GEOMETRIES = [(1, 1024, 2), (4, 1024, 3), (8, 1024, 2), (32, 2048, 2)]
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


@pytest.mark.long
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_power_that_fails_at_any_byte_leaves_the_old_record_or_the_new_one(
    program: Path, geometry: tuple[int, int, int]
) -> None:
    assert run(program, "cuts", 1, 4, geometry) == ""


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_long_life_with_many_cuts_loses_nothing(program: Path, geometry: tuple[int, int, int]) -> None:
    assert run(program, "runs", 1, 800, geometry) == ""


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_byte_that_changes_by_itself_is_never_read_as_another_record(
    program: Path, geometry: tuple[int, int, int]
) -> None:
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


MARK = "put_mark(medium, flash->page, r->next - medium->unit)"
MISTAKES = {
    "the mark is programmed before the record": (
        "cuts",
        "flash->must_move = true; /* until the record is whole */",
        f"flash->must_move = true; (void){MARK};",
    ),
    "a record has no checksum": ("cuts", "return same_head && get_32(bytes) == crc;", "(void)same_head; return true;"),
    "the page in use is erased": ("cuts", "return (flash->page + 1) % flash->medium->pages;", "return flash->page;"),
    "the next record follows one that was cut off": (
        "cuts",
        "if (what == TORN || what == UNMARKED) {",
        "if (what == DAMAGED) {",
    ),
    "the old page is given up before the new one is in use": (
        "cuts",
        "hush_status status = copy_live(",
        "(void)put_mark(medium, from, mark_at(medium, REPLACED)); hush_status status = copy_live(",
    ),
    "a full flash has no room to remove a record": ("runs", "room - greater(flash->largest, bytes)", "room"),
    "damage is taken for a cut": ("rots", "return intact ? WHOLE : DAMAGED;", "return intact ? WHOLE : TORN;"),
    "an older page is taken where the newest is damaged": (
        "rots",
        "return has_mark(medium, flash->page, mark_at(medium, REPLACED)) ? HUSH_STORAGE : HUSH_OK;",
        "return HUSH_OK;",
    ),
}
"""Planted in the storage, each must be found: the mode, the right text and the wrong one."""


@pytest.mark.outside
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_the_storage_is_found(mistake: tuple[str, str, str], tmp_path: Path) -> None:
    mode, right, wrong = mistake
    source = SOURCE.read_text(encoding="utf-8")
    assert source.count(right) == 1
    changed = tmp_path / SOURCE.name
    changed.write_text(source.replace(right, wrong), encoding="utf-8")
    program = compiled(tmp_path, main=MAIN, library=changed, sanitized=False, options=SHARED)
    assert run(program, mode, 1, 3000 if mode == "runs" else 60, (32, 1024, 2)) != ""
