"""Copy of the page with answers to a list of questions, for a web site of one's own."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

from placekit.io.atomic import write_text
from placekit.io.reading import read_json
from placekit.model.errors import InvalidFileError
from placekit.page.answers import Answers
from placekit.page.questions import DroppedModels, QuestionError, asset

MAX_QUESTIONS = 1000


def write_static(questions: Path, folder: Path) -> int:
    """Write the page and its answers into a folder, and return how many there are.

    Raises `InvalidFileError`: no list of questions, or a question that has no answer; the message has its number.
    """
    asked = read_json(questions)
    if not isinstance(asked, list) or not 1 <= len(asked) <= MAX_QUESTIONS:
        raise InvalidFileError(f"{questions}: it must be a list of 1 to {MAX_QUESTIONS} questions")
    found = []
    with tempfile.TemporaryDirectory(prefix="placekit-page-") as scratch:
        answers = Answers(DroppedModels(Path(scratch)))
        for number, question in enumerate(asked, 1):
            try:
                found.append({"question": question, "answer": answers.answer(question, threading.Event())})
            except QuestionError as error:
                raise InvalidFileError(f"{questions}: question {number}: {error.field}: {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    told = json.dumps(found).replace("<", "\\u003c")
    page = asset("page.html").replace("<!-- answers -->", '<script src="answers.js" defer></script>')
    write_text(folder / "answers.js", f"globalThis.ANSWERS = {told};\n")
    for name in ("page.css", "page.js", "files.js"):
        write_text(folder / name, asset(name))
    write_text(folder / "index.html", page)
    return len(found)
