"""Check a file of text chat rows: CPU and memory, against Python's ``json`` reading the same lines and against ``wc -l``.

Two files, seeded: thin rows (10,000,000, some 1.1 GiB; the answer is a word) and fat ones (1 GiB in rows of 16 KiB). Each
side reads each file in a process of its own, from the disk, so memory is a process' own peak and CPU is what it used, its start
taken off. ``json`` is one ``json.loads`` a line and a look at four fields: what a first version would do. ``flat`` is the cost of
a row in the whole thin file over that in one of 10,000 rows, which is checked many times over. ``ROWS`` and ``FAT_MB`` turn the
sizes down.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anex.rows.check import RowChecker
from anex.rows.settings import RowSettings
from bench.support.rounds import ROUNDS, print_figures, say
from config.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anex.rows.check import Summary

FULL_ROWS = 10_000_000
FULL_FAT_MB = 1024
ROWS = int(os.environ.get("ROWS", str(FULL_ROWS)))
FAT_MB = int(os.environ.get("FAT_MB", str(FULL_FAT_MB)))
SEED = 20261201
FEW_ROWS = 10_000
FEW_TIMES = 50
FAT_ROW_BYTES = 16 << 10
BLOCK_BYTES = 8 << 20
WORDS = ("yes", "no", "red", "green", "blue", "one", "two", "ten")
PROSE = (
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "it",
    "as",
    "was",
    "with",
    "on",
    "are",
    "by",
    "this",
    "which",
)
NEWLINE_EACH_WORDS = 14
QUOTE_EACH_WORDS = 45
ACCENT_EACH_WORDS = 60
_ROW = (
    '{"custom_id":"%s","method":"POST","url":"/v1/chat/completions",'
    '"body":{"messages":[{"role":"user","content":"%s"}]}}\n'
)
CONFIG = Path(__file__).parent.parent / "config"
SPEC = load_catalog(CONFIG / "models.local.toml").get("smollm2-135m")
MEDIA_SPEC = load_catalog(CONFIG / "models.toml").get("nemotron-3-nano-omni-30b")
MIB = 1 << 20
CLIP_BYTES = 150 * MIB
_CLIP_ROW = (
    b'{"custom_id":"clip","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":'
    b'[{"type":"video_url","video_url":{"url":"data:video/x-msvideo;base64,%s","duration_seconds":30}}]}]}}\n'
)


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="anex-bench-") as name:
        folder = Path(name)
        thin, fat, few = folder / "thin", folder / "fat", folder / "few"
        digest = write_rows(thin, ROWS, lambda generator: generator.choice(WORDS))
        write_rows(few, FEW_ROWS, lambda generator: generator.choice(WORDS))
        write_rows(fat, FAT_MB * (1 << 20) // FAT_ROW_BYTES, make_prose)
        long, same = folder / "long", folder / "same"
        write_long_line(long)
        write_same_rows(same)
        extremes = {side: run_side(side, file) for side, file in (("long", long), ("same", same))}
        report(measure(thin), measure(fat), measure_few(few), digest, extremes, long.stat().st_size)


def report(
    thin: dict[str, dict[str, float]],
    fat: dict[str, dict[str, float]],
    few_cpu_s: float,
    digest: str,
    extremes: dict[str, dict[str, float]],
    long_bytes: int,
) -> None:
    """Say and print the figures."""
    ours, fat_ours = thin["ours"], fat["ours"]
    per_row, per_few = ours["cpu_s"] / ROWS, few_cpu_s / FEW_ROWS
    say(f"{ROWS:,} thin rows: {ours['cpu_s']:.2f} CPU-s, {ours['rss_mb']:.0f} MB at most;")
    say(f"  json takes {thin['json']['cpu_s']:.2f} CPU-s, wc {thin['wc']['cpu_s']:.2f}.")
    say(
        f"{FAT_MB:,} MB in rows of 16 KiB: {fat_ours['cpu_s']:.2f} CPU-s, {fat_ours['rss_mb']:.0f} MB at most;"
    )
    say(f"  json takes {fat['json']['cpu_s']:.2f} CPU-s.")
    say(
        f"A row costs {per_row * 1e6:.3f} µs in the large file and {per_few * 1e6:.3f} µs in one of {FEW_ROWS:,}."
    )
    long_x = extremes["long"]["rss_mb"] * MIB / long_bytes
    say(
        f"One line of {long_bytes // MIB} MiB: {extremes['long']['cpu_s']:.2f} CPU-s, {long_x:.2f} times its size at most."
    )
    say(
        f"{ROWS:,} rows with one id: {extremes['same']['cpu_s']:.2f} CPU-s, {extremes['same']['rss_mb']:.0f} MB at most."
    )
    print_figures(
        rows=ROWS,
        cpu_s=round(ours["cpu_s"], 2),
        rss_mb=round(ours["rss_mb"], 1),
        x_json=round(thin["json"]["cpu_s"] / ours["cpu_s"], 2),
        x_wc=round(thin["wc"]["cpu_s"] / ours["cpu_s"], 3),
        fat_cpu_s=round(fat_ours["cpu_s"], 2),
        fat_rss_mb=round(fat_ours["rss_mb"], 1),
        fat_x_json=round(fat["json"]["cpu_s"] / fat_ours["cpu_s"], 2),
        flat=round(per_row / per_few, 3),
        long_line_x=round(long_x, 3),
        duplicates_rss_mb=round(extremes["same"]["rss_mb"], 1),
        input=digest,
        settings={"rows": ROWS, "fat_mb": FAT_MB, "seed": SEED},
        quick=ROWS < FULL_ROWS or FAT_MB < FULL_FAT_MB,
    )


def write_rows(file: Path, rows: int, make_text: Callable[[random.Random], str]) -> str:
    """Write a file of rows and return its hash."""
    generator, digest = random.Random(SEED), hashlib.sha256()  # noqa: S311 - seeded rows, no secret
    with file.open("wb") as out:
        for first in range(0, rows, FEW_ROWS):
            numbers = range(first, min(first + FEW_ROWS, rows))
            block = "".join(_ROW % (f"r{number}", make_text(generator)) for number in numbers).encode()
            digest.update(block)
            out.write(block)
    return digest.hexdigest()[:16]


def write_long_line(file: Path) -> None:
    """Write one row whose line holds a clip of the largest size that the contract takes."""
    riff = b"RIFF" + (CLIP_BYTES - 8).to_bytes(4, "little") + b"AVI LIST"
    data = base64.b64encode(riff + bytes(CLIP_BYTES - len(riff)))
    opening, _, closing = _CLIP_ROW.partition(b"%s")
    with file.open("wb") as out:
        out.writelines((opening, data, closing))


def write_same_rows(file: Path) -> None:
    """Write rows that all have the same id."""
    row = (_ROW % ("same", "yes")).encode()
    with file.open("wb") as out:
        for first in range(0, ROWS, FEW_ROWS):
            out.write(row * min(FEW_ROWS, ROWS - first))


def make_prose(generator: random.Random) -> str:
    """Return some 16 KiB of words with lines, quotes and accents as prose has them, escaped as JSON has them."""
    words = generator.choices(PROSE, k=FAT_ROW_BYTES // 4)
    words[::NEWLINE_EACH_WORDS] = [f"{word}\\n" for word in words[::NEWLINE_EACH_WORDS]]
    words[1::QUOTE_EACH_WORDS] = [f'\\"{word}\\"' for word in words[1::QUOTE_EACH_WORDS]]
    words[2::ACCENT_EACH_WORDS] = [f"caf\u00e9 {word}" for word in words[2::ACCENT_EACH_WORDS]]
    return " ".join(words)


def measure(file: Path) -> dict[str, dict[str, float]]:
    """Let each side read the file in turn; return the medians of what each used."""
    taken: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(ROUNDS):
        for side, used in taken.items():
            used.append(run_side(side, file))
    return {
        side: {key: sorted(each[key] for each in used)[ROUNDS // 2] for key in used[0]}
        for side, used in taken.items()
    }


def measure_few(file: Path) -> float:
    """Return the CPU seconds of checking a small file, the mean of many times in one process: once the median of rounds."""
    used = sorted(run_side("few", file)["cpu_s"] for _ in range(ROUNDS))
    return used[ROUNDS // 2] / FEW_TIMES


def run_side(side: str, file: Path) -> dict[str, float]:
    """Run one side in a process of its own."""
    if side == "wc":
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["wc", "-l", str(file)], stdout=subprocess.DEVNULL, check=True)  # noqa: S607 - the wc of the machine
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"cpu_s": cpu_s, "rss_mb": 0.0}
    answer = subprocess.run(
        [sys.executable, "-m", "bench.validate", side, str(file)], capture_output=True, check=True
    )
    used: dict[str, float] = json.loads(answer.stdout)
    return used


def read_blocks(file: Path) -> Iterator[bytes]:
    """Yield the file as the object store would."""
    with file.open("rb") as source:
        while block := source.read(BLOCK_BYTES):
            yield block


def check(file: Path) -> Summary:
    """Check the file as a job's validation does."""
    checker = RowChecker(SPEC, RowSettings(), "etag", lambda _: None)
    summary = checker.check_stream(read_blocks(file))
    checker.find_duplicates(summary, read_blocks(file))
    if summary.faults:
        raise RuntimeError(summary.faults.sentences()[0])
    return summary


def check_long(file: Path) -> None:
    """Check the line with the clip, for a model that takes clips."""
    with file.open("rb") as source:
        blocks = iter(lambda: source.read(BLOCK_BYTES), b"")
        summary = RowChecker(MEDIA_SPEC, RowSettings(), "etag", lambda _: None).check_stream(blocks)
    if summary.faults or summary.rows != 1:
        raise RuntimeError(f"the line was not taken: {summary.faults.sentences()}")


def check_same(file: Path) -> None:
    """Check the rows with one id: all but the first are told of or counted."""
    checker = RowChecker(SPEC, RowSettings(), "etag", lambda _: None)
    summary = checker.check_stream(read_blocks(file))
    checker.find_duplicates(summary, read_blocks(file))
    if len(summary.faults.messages) + summary.faults.more != ROWS - 1:
        raise RuntimeError("not every duplicate was counted")


def read_with_json(file: Path) -> int:
    """Read the file as a first version would; return the rows."""
    rows = 0
    with file.open("rb") as source:
        for line in source:
            value: dict[str, Any] = json.loads(line)
            if value["method"] != "POST" or not value["custom_id"] or not value["url"] or not value["body"]:
                raise RuntimeError("a row is not what was written")
            rows += 1
    return rows


def check_few(file: Path) -> None:
    """Check a small file many times."""
    for _ in range(FEW_TIMES):
        check(file)


SIDES = ("ours", "json", "wc")
_INSIDE: dict[str, Callable[[Path], object]] = {
    "ours": check,
    "json": read_with_json,
    "few": check_few,
    "long": check_long,
    "same": check_same,
}


def run_inside(side: str, file: Path) -> None:
    """Be one side: do the work and print what it took."""
    began = time.process_time()
    _INSIDE[side](file)
    print(json.dumps({"cpu_s": time.process_time() - began, "rss_mb": read_peak_kb() / 1024}))


def read_peak_kb() -> int:
    """Return this process' own peak of resident memory; ``getrusage`` would begin with that of the parent at the fork."""
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_inside(sys.argv[1], Path(sys.argv[2]))
    else:
        main()
