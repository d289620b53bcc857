"""Undo the mending of each fault in a copy of the package, and see its tests fail.

    python tests/faults/without_mending.py [--only 3 17] [--plain]

docs/reliability.md lists the faults by these numbers. An undoing is a change of some lines to what they were
or to what would have the same effect; one whose lines are no longer there is an error, and must be written
anew. Each is tried in a copy of src, against the tests as they are, and the status is 1 if tests of one pass.
With --plain kernels run as plain Python, which spares compiling them anew for each copy. Tests have 8 GB of
memory, since some faults are about asking for more.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[2]
MEMORY = 8 << 30


class Undoing(NamedTuple):
    """What to change in which files under src/rangecast, and the tests that must fail then."""

    edits: list[tuple[str, str, str]]
    tests: list[str]


CONTRACT, COLUMNS, NUMERALS = "engine/index.py", "types/columns.py", "types/numerals.py"
WRITERS = "tests/concurrency/test_beside_writers.py"
FAULTS = "tests/concurrency/test_faults.py::test_a_failed_write_is_the_old_state_or_the_new_one"
PUBLISHED_EARLY = (
    CONTRACT,
    "            self._catalog = draft\n            if len(replaced):",
    "            self._catalog = draft\n            self._publish()\n            if len(replaced):",
)
UNDOINGS = {
    0: Undoing(
        [
            (
                "engine/layouts/bitmap.py",
                "np.ascontiguousarray(ranked).astype(np.int32)",
                "np.ascontiguousarray(ranked).astype(np.uint8).astype(np.int32)",
            )
        ],
        ["tests/engine/test_bitmap.py::test_more_attributes_than_a_byte_counts"],
    ),
    1: Undoing(
        [
            (
                CONTRACT,
                "        with self._lock:\n            return self._read.catalog.find(Ids.of(ids)) >= 0",
                "        return self._catalog.find(Ids.of(ids)) >= 0",
            ),
            (
                CONTRACT,
                "        catalog.n_updates = source.n_updates\n",
                "        catalog.n_updates = source.n_updates\n        self._catalog = catalog\n",
            ),
        ],
        [f"{WRITERS}::test_asking_for_an_id_changes_no_write"],
    ),
    2: Undoing(
        [
            (
                "model/events.py",
                "        codes = view.codes.copy()\n        strangers: dict",
                "        codes = view.codes\n        self._view = view._replace(known=known)\n"
                "        strangers: dict",
            )
        ],
        ["tests/model/test_events_matches.py::test_matching_changes_no_event"],
    ),
    3: Undoing(
        [(CONTRACT, "return {name: array.copy() for name, array in arrays.items()}", "return arrays")],
        [f"{WRITERS}::test_a_save_is_of_one_state", f"{WRITERS}::test_a_pickle_is_of_one_state"],
    ),
    4: Undoing([PUBLISHED_EARLY], [f"{WRITERS}::test_an_insert_that_finds_no_room_is_not_there"]),
    5: Undoing(
        [
            (CONTRACT, "        if self._catalog is not self._read.catalog:\n", "        if False:\n"),
            (
                "engine/parts.py",
                "        self._catalog, self._parts, self._gone = state.catalog, state.parts, ",
                "        _ = ",
            ),
        ],
        [
            f"{FAULTS}[{case}]"
            for case in ("auto-replace_some", "vci-replace_some", "rtree-insert_new", "islist-insert_new")
        ],
    ),
    9: Undoing(
        [
            (
                COLUMNS,
                "good = np.fromiter(map(is_unicode, items), bool, len(items))",
                "good = np.ones(len(items), bool)",
            ),
            (NUMERALS, "plain = _matches(data, _INTEGER)", 'plain = _matches(data, r"^[+-]*[0-9]+$")'),
        ],
        ["tests/types/test_columns.py::test_no_text_stops_a_column"],
    ),
    12: Undoing(
        [
            (
                "engine/boxes_kernels.py",
                "j = min(head & POSITION, np.int64(bases.size - 1))",
                "j = head & POSITION",
            )
        ],
        ["tests/engine/test_box_entries.py::test_whatever_the_words_are_kernels_stay_within_them"],
    ),
    15: Undoing(
        [
            (
                "model/ids.py",
                'pc.rank(self.arrow(), tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)',
                "np.unique(np.array(self.arrow().to_pylist()), return_inverse=True)[1].astype(np.int64)",
            )
        ],
        ["tests/model/test_events_matches.py::test_one_long_id_does_not_cost_the_others_its_room"],
    ),
    17: Undoing(
        [
            (
                "store/change_log.py",
                "if not whole or not self._take_list(path, *segments[number]):",
                "if True:",
            )
        ],
        ["tests/store/test_history.py::test_many_versions_are_one_change_of_an_index"],
    ),
    20: Undoing(
        [
            (COLUMNS, "    if pa.types.is_binary(kind):\n        return True\n", ""),
            (
                COLUMNS,
                "    except OverflowError:\n        return np.inf if value > 0 else -np.inf\n",
                "    except OverflowError:\n        raise\n",
            ),
            ("types/instants.py", '    if unit in ("Y", "M"):', "    if False:"),
        ],
        [
            "tests/types/test_columns.py::test_a_bad_value_leaves_its_neighbours_alone",
            "tests/types/test_columns.py::test_times_of_every_unit",
            "tests/types/test_columns.py::test_a_float_takes_whole_numbers_of_any_size",
        ],
    ),
    21: Undoing(
        [
            (
                "loading/events.py",
                "return None if isinstance(cause, OSError) and cause.errno is not None else str(error)",
                "return None",
            )
        ],
        ["tests/spark/test_match_files.py::test_a_damaged_file_among_good_ones_is_rejected_as_a_whole"],
    ),
    22: Undoing(
        [
            (
                "model/subscriptions.py",
                "        if not self.reasons:\n            repeats",
                "        if True:\n            repeats",
            )
        ],
        ["tests/model/test_subscriptions.py::test_a_bad_row_takes_nothing_from_a_later_good_one"],
    ),
}


def undo(undoing: Undoing, source: Path) -> None:
    """Change a copy of src."""
    for name, old, new in undoing.edits:
        path = source / "rangecast" / name
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{name}: these lines must stand there once, found {text.count(old)}:\n{old}")
        path.write_text(text.replace(old, new))


def try_one(undoing: Undoing, plain: bool) -> tuple[list[str], str]:
    """The tests that pass without the mending, and the last line that pytest says."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(HERE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        undo(undoing, source)
        env = {**os.environ, "PYTHONPATH": str(source)} | ({"NUMBA_DISABLE_JIT": "1"} if plain else {})
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--tb=no", "-p", "no:cacheprovider"]
        done = subprocess.run(
            command + undoing.tests,
            cwd=HERE,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        )
    lines = done.stdout.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    passing = [test for test in undoing.tests if not any(test in line for line in failed)]
    return passing, lines[-1] if lines else done.stderr


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", type=int, nargs="*", choices=UNDOINGS, default=list(UNDOINGS))
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    unmoved = 0
    for number in given.only:
        passing, said = try_one(UNDOINGS[number], given.plain)
        unmoved += len(passing)
        print(f"{number}: {said}", *(f"PASSES: {test}" for test in passing), sep="\n  ", flush=True)
    sys.exit(bool(unmoved))


if __name__ == "__main__":
    main()
