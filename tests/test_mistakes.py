"""Each kind of mistake, with each program: one message, nothing done.

The messages are those of docs/mistakes.md; mistakes are in tests/mistakes.py.
"""
import ast
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT
import mistakes

PAGES = ("mistakes.md", "mistakes.zh-CN.md")
ROW = re.compile(r"\| (.+) \| `(.+)` \| 1 \|$")
# The rows of these sections belong to other tests.
OTHERS = ("Data files", "数据文件", "Warnings", "警告",
          "While a run is under way", "运行过程中")


def read_rows(page, is_other=False):
  """The messages of a page, of the sections that this test is about."""
  text = (ROOT / "docs" / page).read_text(encoding="utf-8")
  messages = []
  for section in text.split("\n## ")[1:]:
    if (section.split("\n")[0] in OTHERS) == is_other:
      messages += [match.group(2) for match in map(
          ROW.match, section.splitlines()) if match]
  return messages


def matches(message, output):
  """Whether a message of the page is in an output; "…" is any text."""
  pieces = [re.escape(piece.strip()) for piece in message.split("…")]
  return re.search(".*".join(pieces), " ".join(output.split())) is not None


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
  """{(script, key): [status, output, seconds, sessions, files]}"""
  found = {}
  running = {}
  for script in mistakes.SCRIPTS:
    running[script] = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "mistakes.py"), script,
         str(tmp_path_factory.mktemp(script))],
        cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=dict(os.environ, CUDA_VISIBLE_DEVICES="",
                            PYTHONPATH=str(ROOT / "tests")))
  for script, process in running.items():
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, (script, output[-3000:])
    for key, outcome in json.loads(output.splitlines()[-1]).items():
      found[script, key] = outcome
  return found


@pytest.mark.parametrize("script", mistakes.SCRIPTS)
def test_each_mistake_is_answered_before_any_work(outcomes, script):
  rows = read_rows(PAGES[0])
  wrong = []
  for (name, key), (status, output, seconds, num_sessions, files
                    ) in outcomes.items():
    if name != script:
      continue
    is_well = (status == 1 and "Traceback" not in output
               and not num_sessions and not files
               and output.count("ERROR: ") + output.count("FATAL ") == 1
               and any(matches(row, output) for row in rows))
    if not is_well:
      wrong.append((key, status, num_sessions, files, output[-1500:]))
    # Less than a second here; the rest is for a busy machine.
    assert seconds < 10, key
  assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("page", PAGES)
def test_no_row_is_out_of_date(outcomes, page):
  outputs = [outcome[1] for outcome in outcomes.values()]
  stale = [row for row in read_rows(page)
           if not any(matches(row, output) for output in outputs)]
  assert not stale


@pytest.mark.parametrize("page", PAGES)
def test_warnings_are_those_of_the_code(page):
  """Each message is made of texts of the code, with values filled in."""
  patterns = []
  for path in (ROOT / "multigpu").glob("*.py"):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
      text = getattr(node, "value", getattr(node, "s", None))
      if isinstance(node, (ast.Constant, ast.Str)) and isinstance(text, str):
        pieces = re.split(r"%\.?\d*[sdgr]|{[^{}]*}", text)
        if len(max(pieces, key=len)) > 12:
          patterns.append(".*".join(map(re.escape, pieces)))
  section = (ROOT / "docs" / page).read_text(encoding="utf-8").split("\n## ")[
      -2:]
  messages = re.findall(r"\| `(.+)` \|", "\n".join(section))
  assert len(messages) >= 18
  for message in messages:
    found = [pattern for pattern in patterns if re.search(pattern, message)]
    # Several texts may make one message: all that is left are values.
    rest = message
    for pattern in sorted(found, key=len, reverse=True):
      rest = re.sub(pattern, "", rest, count=1)
    assert found and len(rest) < 60, (message, rest)


def test_both_pages_have_the_same_messages():
  for is_other in (False, True):
    english, chinese = (read_rows(page, is_other) for page in PAGES)
    assert english == chinese
  assert len(read_rows(PAGES[0])) > 70


def test_the_good_command_has_no_mistake():
  """Else a mistake may be answered for another reason than its own."""
  for script in mistakes.SCRIPTS:
    keys = [key for key, (scripts, _) in mistakes.MISTAKES.items()
            if script in scripts]
    commands = {key: mistakes.command(script, mistakes.MISTAKES[key][1])
                for key in keys}
    good = mistakes.command(script, {})
    assert all(command != good for command in commands.values())
