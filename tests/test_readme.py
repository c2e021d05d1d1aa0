"""The READMEs say the same in both languages and name files that exist."""
import re

import pytest

from conftest import ROOT

ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
# Names with these endings are files of the project; the other files in the
# text (predictions.json, vocab.txt, ...) are what runs read and write.
PROJECT_FILE = re.compile(r"(?<![\w./*-])[\w*./-]+\.(?:py|sh|md)(?![\w-])")
PROJECT_FOLDER = re.compile(r"(?<!\S)[\w.]+/(?!\S)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def split(text):
  """(prose lines, code blocks): fenced or indented, whichever is used."""
  prose, blocks, fence, open_block = [], [], False, False
  for line in text.splitlines():
    if line.startswith("```"):
      fence = not fence
      open_block = False
    if fence or (line.startswith("    ") and line.strip()):
      if not open_block:
        blocks.append([])
        open_block = True
      blocks[-1].append(line)
    else:
      open_block = False
      if not line.startswith("```"):
        prose.append(line)
  return prose, ["\n".join(block) for block in blocks]


def read(name):
  return split((ROOT / name).read_text(encoding="utf-8"))


def headings(prose):
  return [re.match("#+ ", line).group().strip() for line in prose
          if re.match("#+ ", line)]


def table_flags(prose):
  return [flag for line in prose if line.startswith("|")
          for flag in re.findall(r"--[a-z]\w*", line)]


def named_files(prose, blocks):
  """Files, folders and patterns that the text says are in the project."""
  text = "\n".join(prose)
  code = re.findall(r"`([^`]+)`", text) + blocks
  names = {name for part in code for pattern in (PROJECT_FILE, PROJECT_FOLDER)
           for name in pattern.findall(part)}
  links = {target.split("#")[0] for target in LINK.findall(text)
           if "://" not in target}
  return sorted(names | links - {""})


def test_same_headings():
  found = headings(read(ENGLISH)[0])
  assert len(found) > 5
  assert headings(read(CHINESE)[0]) == found


def test_same_code_blocks():
  found = read(ENGLISH)[1]
  assert len(found) > 5
  assert read(CHINESE)[1] == found


def test_same_flags_in_the_tables():
  found = table_flags(read(ENGLISH)[0])
  assert "--num_gpus" in found
  assert table_flags(read(CHINESE)[0]) == found


def test_chinese_readme_begins_with_a_link_to_the_english_one():
  first = (ROOT / CHINESE).read_text(encoding="utf-8").splitlines()[0]
  assert "(%s)" % ENGLISH in first


@pytest.mark.parametrize("readme", [ENGLISH, CHINESE])
def test_named_files_exist(readme):
  names = named_files(*read(readme))
  assert {"run_squad_multigpu.py", "scripts/test.sh", "tasks/"} <= set(names)
  missing = [name for name in names if not list(ROOT.glob(name.rstrip("/")))]
  assert not missing, "%s names %s" % (readme, ", ".join(missing))


@pytest.mark.parametrize("prose, expected", [
    ("`python run_x.py --help` and `bert/...`, `cls/squad/...`", ["run_x.py"]),
    ("`run_*_multigpu.py`, `.venv/tf1`, `predictions.json`",
     ["run_*_multigpu.py"]),
    ("[how](docs/a.md#b), [there](https://example.org/c.md), [up](#top)",
     ["docs/a.md"]),
])
def test_what_counts_as_a_named_file(prose, expected):
  assert named_files([prose], []) == expected


def test_blocks_are_found_fenced_and_indented():
  text = "# a\n```sh\n# b\n\nc\n```\nd\n\n    e\n    f\n\n    g\n"
  assert split(text) == (["# a", "d", "", ""],
                         ["```sh\n# b\n\nc", "    e\n    f", "    g"])
