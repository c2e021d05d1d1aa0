"""Small files: whole or not at all, errors that name the path."""
import os

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
