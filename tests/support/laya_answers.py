"""What the laya package itself answers, row by row: the reference that the engine and the counter are held against.

    <engine python> -m tests.support.laya_answers CHECKPOINTS < rows.jsonl > answers.jsonl

Runs in the engine's environment. A row that the package refuses is answered with ``{"error": its message}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import laya


def main(checkpoints: Path) -> None:
    """Answer each line of standard input."""
    folders = {name: str(checkpoints / name) for name in ("english", "multilingual")}
    router = laya.Router(models=folders, device="cpu").preload(list(folders))
    for line in sys.stdin:
        row = json.loads(line)
        try:
            answer = router.predict(row["state"], row["questions"], lang=row.get("lang"), head_max_len=192)
        except ValueError as refusal:
            answer = {"error": str(refusal)}
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
