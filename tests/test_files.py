"""Small files: whole or not at all, errors that name the path."""
import os
import subprocess
import sys
import time

import pytest
import tensorflow.compat.v1 as tf

from multigpu import files
from multigpu.errors import UserError


def test_writes_and_replaces(tmp_path):
  path = tmp_path / "a.json"
  files.write_text_atomically(str(path), "one\n")
  files.write_text_atomically(str(path), "zwei \u00fc\n")
  assert path.read_bytes() == "zwei \u00fc\n".encode("utf-8")
  assert os.listdir(str(tmp_path)) == ["a.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
  path = tmp_path / "a.json"
  path.write_text("old")

  def fail(*args, **kwargs):
    raise tf.errors.ResourceExhaustedError(None, None, "no space left")

  monkeypatch.setattr(tf.io.gfile, "rename", fail)
  with pytest.raises(UserError, match="a.json.*no space left"):
    files.write_text_atomically(str(path), "new")
  assert path.read_text() == "old"
  assert os.listdir(str(tmp_path)) == ["a.json"]


def test_missing_folder_is_named(tmp_path):
  with pytest.raises(UserError, match="absent/a.json"):
    files.write_text_atomically(str(tmp_path / "absent" / "a.json"), "x")


@pytest.mark.parametrize("content, message", [
    (b"{", "is not JSON"), (b'"\xff"', "is not UTF-8 text .byte 0xff at off")])
def test_read_json_errors(tmp_path, content, message):
  path = tmp_path / "a.json"
  path.write_bytes(content)
  with pytest.raises(UserError, match=message):
    files.read_json(str(path))


def test_read_json_with_byte_order_mark(tmp_path):
  path = tmp_path / "a.json"
  path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
  assert files.read_json(str(path)) == {"a": 1}


def dead_process():
  process = subprocess.Popen([sys.executable, "-c", ""])
  process.wait()
  return process.pid


def make_old(path):
  long_ago = time.time() - 3600
  os.utime(str(path), (long_ago, long_ago))


def test_what_dead_runs_left_is_removed(tmp_path):
  host = files.temporary_name("x").split(".")[1]
  gone = ["train.tf_record.%s.%d.tmp" % (host, dead_process()),
          "labels.txt.%s.%d.tmp" % (host, os.getpid()),
          "eval.tf_record.elsewhere.1.tmp", "checkpoint.tmp12ab",
          "model.ckpt-30.index.tempstate123"]
  kept = ["train.tf_record.%s.%d.tmp" % (host, os.getppid()),
          "notes.tmp", "model.ckpt-20.index", "model.ckpt-20_temporary_notes",
          "train.tf_record", "a.5.tmp"]
  for name in gone + kept:
    (tmp_path / name).write_text("")
    make_old(tmp_path / name)
  for name in ("model.ckpt-30_temp", "model.ckpt-40_temp_0a1b"):
    (tmp_path / name).mkdir()
    (tmp_path / name / "part-0").write_text("")
    make_old(tmp_path / name / "part-0")
    make_old(tmp_path / name)
  # Somebody is writing there.
  (tmp_path / "model.ckpt-40_temp_0a1b" / "part-1").write_text("")
  (tmp_path / "test.tsv.elsewhere.2.tmp").write_text("")
  files.remove_leftovers(str(tmp_path))
  assert sorted(os.listdir(str(tmp_path))) == sorted(
      kept + ["model.ckpt-40_temp_0a1b", "test.tsv.elsewhere.2.tmp"])
  files.remove_leftovers(str(tmp_path / "absent"))


def test_an_interruption_leaves_no_half_file(tmp_path, monkeypatch):
  def interrupt(*args, **kwargs):
    raise SystemExit(143)

  monkeypatch.setattr(tf.io.gfile, "rename", interrupt)
  with pytest.raises(SystemExit):
    files.write_text_atomically(str(tmp_path / "a.json"), "new")
  assert os.listdir(str(tmp_path)) == []
