"""The patch tool on a made-up checkout, and docs/patching*.md."""
import re
import shutil
import stat
import subprocess

import pytest

import made_up_bert
import patch_bert
from conftest import ROOT

TOOL = ROOT / "scripts" / "patch_bert.sh"
OURS = (ROOT / "optimization_multigpu.py").read_bytes()
ENGLISH = made_up_bert.PAGE
CHINESE = (ROOT / "docs" / "patching.zh-CN.md").read_text(encoding="utf-8")


@pytest.fixture
def checkout(tmp_path):
  folder = made_up_bert.write(tmp_path / "a checkout")
  (folder / "optimization.py").chmod(0o664)
  return folder


def tool(*arguments, **options):
  return subprocess.run(
      ["bash", str(TOOL)] + [str(argument) for argument in arguments],
      capture_output=True, text=True, **options)


def patch(checkout):
  done = tool(checkout)
  assert (done.returncode, done.stderr) == (0, "")
  return done.stdout


# Applying and reverting.


def test_apply_and_revert(checkout):
  before = made_up_bert.snapshot(checkout)
  assert "optimization.bak" in patch(checkout)
  after = made_up_bert.snapshot(checkout)
  assert after.pop("optimization.bak") == before["optimization.py"]
  assert after["optimization.py"][1] == OURS
  for name in set(before) - {"optimization.py"}:
    assert after.pop(name) == before[name]
  assert list(after) == ["optimization.py"], "nothing else is left there"

  done = tool("--revert", checkout)
  assert (done.returncode, done.stderr) == (0, "")
  assert made_up_bert.snapshot(checkout) == before


def test_the_path_may_be_relative(checkout):
  done = tool(".", cwd=str(checkout))
  assert done.returncode == 0, done.stderr
  assert "./run_squad.py: 9 edits left" in done.stdout
  assert (checkout / "optimization.py").read_bytes() == OURS


def refused(folder, *arguments, saying):
  """Runs the tool, which must refuse and change nothing."""
  before = made_up_bert.snapshot(folder)
  done = tool(*arguments)
  assert done.returncode == 1
  assert saying in done.stderr
  assert done.stdout == ""
  assert made_up_bert.snapshot(folder) == before


@pytest.mark.parametrize("name, saying", [
    ("modeling.py", "it has no modeling.py"),
    ("optimization.py", "it has no optimization.py"),
    ("run_*.py", "it has no run_*.py")])
def test_what_is_no_checkout_is_refused(checkout, name, saying):
  for path in checkout.glob(name):
    path.unlink()
  refused(checkout, checkout, saying=saying)


def test_an_optimizer_without_create_optimizer_is_refused(checkout):
  # As this project's own, which only passes the name on.
  shutil.copy(str(ROOT / "optimization.py"), str(checkout))
  refused(checkout, checkout, saying="does not define create_optimizer")


def test_no_folder_is_refused(tmp_path):
  refused(tmp_path, tmp_path / "nowhere", saying="is not a folder")


def test_a_second_patch_is_refused(checkout):
  patch(checkout)
  refused(checkout, checkout, saying="already patched")
  (checkout / "optimization.bak").unlink()
  refused(checkout, checkout, saying="already patched")


def test_a_backup_is_never_overwritten(checkout):
  (checkout / "optimization.bak").write_text("# the only copy\n")
  refused(checkout, checkout, saying="optimization.bak exists")


def test_a_link_is_refused(checkout, tmp_path):
  target = checkout / "optimization.py"
  shutil.move(str(target), str(tmp_path / "elsewhere.py"))
  target.symlink_to(tmp_path / "elsewhere.py")
  refused(checkout, checkout, saying="symbolic link")


@pytest.mark.parametrize("arguments", [
    [], ["--fast", "x"], ["x", "y"], ["--force", "x"],
    ["--edits", "--revert", "x"]])
def test_wrong_arguments_are_refused(arguments, tmp_path):
  done = tool(*arguments, cwd=str(tmp_path))
  assert done.returncode == 1
  assert "usage:" in done.stderr


def test_an_interrupted_patch_leaves_whole_files(checkout, tmp_path):
  before = made_up_bert.snapshot(checkout)
  # Stops before the last of the two renames.
  fake = tmp_path / "bin" / "mv"
  fake.parent.mkdir()
  fake.write_text('#!/bin/sh\ncase $3 in *.bak) exec "%s" "$@" ;; esac\nexit 1'
                  '\n' % shutil.which("mv"))
  fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
  path = "%s:/usr/bin:/bin" % fake.parent
  assert tool(checkout, env={"PATH": path}).returncode == 1
  after = made_up_bert.snapshot(checkout)
  assert after.pop("optimization.bak") == before["optimization.py"]
  assert after == before
  refused(checkout, checkout, saying="interrupted")
  assert tool("--revert", checkout).returncode == 0
  assert made_up_bert.snapshot(checkout) == before
  patch(checkout)


def test_nothing_to_revert(checkout):
  refused(checkout, "--revert", checkout, saying="nothing to revert")


def test_an_edited_optimizer_is_reverted_only_by_force(checkout):
  before = made_up_bert.snapshot(checkout)
  patch(checkout)
  with (checkout / "optimization.py").open("a") as writer:
    writer.write("# mine\n")
  refused(checkout, "--revert", checkout, saying="--revert --force")
  assert tool("--revert", "--force", checkout).returncode == 0
  assert made_up_bert.snapshot(checkout) == before


def test_without_python_it_patches_all_the_same(checkout, tmp_path):
  tools = tmp_path / "tools"
  tools.mkdir()
  for name in ("bash", "cat", "cmp", "cp", "dirname", "grep", "mktemp", "mv",
               "rm"):
    (tools / name).symlink_to(shutil.which(name))
  done = tool(checkout, env={"PATH": str(tools)})
  assert done.returncode == 0, done.stderr
  assert "docs/patching.md" in done.stdout
  assert (checkout / "optimization.py").read_bytes() == OURS


# The edits that remain.


def edits(text):
  """(step, state, line) of all edits of a script."""
  return [(edit.step, edit.state, edit.line)
          for edit in patch_bert.edits_of(patch_bert.Source(text.encode()))]


def line_of(text, part, number=0):
  """Line of the occurrence of a part of a text."""
  return [i for i, line in enumerate(text.splitlines(), 1)
          if part in line][number]


def code_blocks(text):
  return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)


def test_the_edits_have_the_lines_of_the_script():
  text = made_up_bert.RUN_SQUAD
  steps = patch_bert.STEPS
  assert edits(text) == [(step, "to do", line_of(text, part, number))
                         for step, part, number in [
      (steps[0], "num_tpu_cores", 0),
      (steps[1], "if use_tpu:", 0),
      (steps[2], "TPUEstimatorSpec(", 0),
      (steps[3], "TPUEstimatorSpec(", 1),
      (steps[3], "TPUEstimatorSpec(", 2),
      (steps[4], "tpu.RunConfig(", 0),
      (steps[5], "= model_fn_builder(", 0),
      (steps[5], "tpu.TPUEstimator(", 0),
      (steps[6], "num_train_steps = int(", 0)]]


def test_the_tool_prints_the_edits(checkout):
  first = patch(checkout)
  assert "run_squad.py: 9 edits left" in first
  for _, state, line in edits(made_up_bert.RUN_SQUAD):
    assert re.search(r"^  line %d +.*\(%s\)" % (line, state), first, re.M)
  assert "run_with_other.py: 1 edit left" in first
  assert "the flags are those of run_squad.py" in first
  again = tool("--edits", checkout)
  assert again.returncode == 0
  assert again.stdout == first[first.index("\n") + 1:]


def test_what_is_done_is_said_to_be_done(tmp_path):
  text = made_up_bert.with_all_edits(made_up_bert.RUN_SQUAD)
  found = edits(text)
  assert {step for step, _, _ in found} == set(patch_bert.STEPS)
  assert {state for _, state, _ in found} == {"done"}
  assert (patch_bert.STEPS[0], "done", line_of(text, '"num_gpus"')) in found
  (tmp_path / "run_squad.py").write_text(text)
  report = patch_bert.report(str(tmp_path / "run_squad.py"))
  assert report[0].endswith("run_squad.py: nothing left to edit")


@pytest.mark.parametrize("before, after, step, part", [
    # The else of the older description, one level too far to the left.
    ("  tf.train.init_from_checkpoint(init_checkpoint, assignment_map)\n",
     "else:\n"
     "  tf.train.init_from_checkpoint(init_checkpoint, assignment_map)\n", 1,
     "init_from_checkpoint("),
    ("output_spec = tf.estimator.EstimatorSpec(\n"
     "    mode=mode, loss=total_loss, train_op=train_op, scaffold=scaffold)\n",
     "output_spec = tf.estimator.EstimatorSpec(\n"
     "    mode, loss=total_loss, train_op=train_op, scaffold_fn=scaffold)\n", 2,
     "EstimatorSpec("),
    ("    train_distribute=distribution)\n", "    keep_checkpoint_max=5)\n", 4,
     "estimator.RunConfig("),
    ('    params={"batch_size": FLAGS.train_batch_size})\n', "    )\n", 5,
     "estimator.Estimator(")])
def test_wrong_edits_are_found(before, after, step, part):
  text = made_up_bert.with_all_edits(made_up_bert.RUN_SQUAD)
  text = made_up_bert.replace(text, before, after)
  wrong = [(name, line) for name, state, line in edits(text)
           if state == "wrong"]
  assert wrong == [(patch_bert.STEPS[step], line_of(text, part))]


def test_a_branch_for_tpus_may_stay():
  text = made_up_bert.with_all_edits(made_up_bert.RUN_SQUAD)
  text += "\n\nestimator = tf.contrib.tpu.TPUEstimator(model_fn=model_fn)\n"
  assert {state for _, state, _ in edits(text)} == {"done"}


def test_a_script_that_is_not_python_3_is_named(tmp_path, capsys):
  path = tmp_path / "run_old.py"
  path.write_text("import os\nprint 'two'\n")
  assert patch_bert.main([str(path), str(tmp_path / "absent.py")]) == 0
  output = capsys.readouterr().out
  assert "run_old.py:2: is not Python 3" in output
  assert "absent.py: cannot be read: No such file" in output


# The documents.


def test_the_chinese_page_is_in_step():
  assert code_blocks(CHINESE) == code_blocks(ENGLISH)
  level = re.compile(r"^(#+) (?:Step |第 )?(\d?)", re.M)
  assert level.findall(CHINESE) == level.findall(ENGLISH)
  # Between two headings and blocks both have as many paragraphs and items.
  def shape(text):
    return [len(re.findall(r"\n\n|^- ", part, re.M)) for part in re.split(
        r"^```\w*\n.*?^```$|^#.*$", text, flags=re.S | re.M)]

  assert shape(CHINESE) == shape(ENGLISH)


def test_the_tool_prints_what_the_page_shows():
  documented = {line.strip() for line in ENGLISH.splitlines()}
  for code in (patch_bert.FLAG, patch_bert.SCAFFOLD, patch_bert.RUN_CONFIG,
               patch_bert.BUILDER, patch_bert.ESTIMATOR,
               *patch_bert.SPEC.values()):
    assert {line.strip() for line in code} <= documented
  assert patch_bert.NUM_STEPS[0] in ENGLISH
