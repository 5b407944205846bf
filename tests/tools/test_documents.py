"""What the documents name is there."""
import itertools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(path.relative_to(ROOT) for place in (".", "docs", "configs", "configs/models")
                   for path in (ROOT / place).glob("*.md"))
FOLDERS = {"io", "cluster", "pipeline", "scheduler", "worker", "tests", "tools", "configs", "docs", "cmake", ".ci"}


def names(text):
    """Paths in backquotes that begin with a folder of ours, each alternative of {a,b} on its own."""
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    for quoted in re.findall(r"`([^`]+)`", prose):
        path = quoted.split()[0]
        if path.split("/")[0] not in FOLDERS or "/" not in path or "<" in path:
            continue
        parts = [part.split(",") for part in re.split(r"[{}]", path)]
        yield from ("".join(choice) for choice in itertools.product(*parts))


def test_there_are_documents_that_name_files():
    assert len(DOCUMENTS) >= 5
    assert len(list(names((ROOT / "ARCHITECTURE.md").read_text()))) > 30


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_file_that_a_document_names_exists(document):
    text = (ROOT / document).read_text()
    assert [name for name in names(text) if not list(ROOT.glob(name.rstrip("/")))] == []
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (ROOT / document.parent / link).exists()] == []
