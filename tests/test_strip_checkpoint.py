"""scripts/strip_checkpoint.py on a checkpoint of a small training."""
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling
import optimization
import strip_checkpoint

CONFIG = modeling.BertConfig(
    vocab_size=300, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=64, max_position_embeddings=16, type_vocab_size=2)
IDS = [[2, 5, 9, 10], [3, 1, 2, 0]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A folder with the checkpoint of two steps, in half precision."""
  folder = tmp_path_factory.mktemp("trained")
  with tf.Graph().as_default():
    tf.set_random_seed(1)
    output = modeling.BertModel(CONFIG, False, tf.constant(IDS)
                                ).get_pooled_output()
    train_op = optimization.create_optimizer(
        tf.reduce_sum(output), 0.1, 10, 0, False,
        loss_scale=optimization.DynamicLossScale())
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      for _ in range(2):
        session.run(train_op)
      tf.train.Saver().save(session, str(folder / "model.ckpt"), global_step=2)
  return folder


def predict(path, restore):
  """Predicts as Google's scripts do: from --init_checkpoint, or restored."""
  with tf.Graph().as_default():
    tf.train.get_or_create_global_step()
    output = modeling.BertModel(CONFIG, False, tf.constant(IDS)
                                ).get_pooled_output()
    if not restore:
      assignment, _ = modeling.get_assignment_map_from_checkpoint(
          tf.trainable_variables(), path)
      assert len(assignment) == len(tf.trainable_variables())
      tf.train.init_from_checkpoint(path, assignment)
    saver = tf.train.Saver()
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      if restore:
        saver.restore(session, path)
      return session.run(output)


def size_of(path):
  return sum(file.stat().st_size for file in path.parent.glob(path.name + ".*")
             if not file.name.endswith(".meta"))


def test_a_third_is_left_and_predicts_the_same(trained, tmp_path, capsys):
  source, target = trained / "model.ckpt-2", tmp_path / "new" / "model.ckpt"
  assert strip_checkpoint.main([str(trained), str(target)]) == 0
  assert "the others compared and equal" in capsys.readouterr().out
  assert size_of(target) / size_of(source) == pytest.approx(1 / 3, abs=0.01)
  wanted = predict(str(source), restore=True)
  for restore in (False, True):
    np.testing.assert_array_equal(predict(str(target), restore), wanted)
  # As the newest checkpoint, also after the folder was moved.
  (tmp_path / "new").rename(tmp_path / "moved")
  newest = tf.train.latest_checkpoint(str(tmp_path / "moved"))
  names = dict(tf.train.list_variables(newest))
  assert "global_step" in names and "bert/pooler/dense/kernel" in names
  assert not [name for name in names if "adam" in name or "scale" in name]
  assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == [
      "checkpoint", "model.ckpt.data-00000-of-00001", "model.ckpt.index"]


def test_the_newest_checkpoint_of_a_training_stays_the_newest(trained):
  before = (trained / "checkpoint").read_text()
  assert strip_checkpoint.main(
      [str(trained / "model.ckpt-2"), str(trained / "small")]) == 0
  assert (trained / "checkpoint").read_text() == before


@pytest.mark.parametrize("source, target, message", [
    ("model.ckpt-2", "model.ckpt-2", "it is the checkpoint to be read"),
    ("model.ckpt-2.index", "out", "leave out the ending and pass"),
    ("model.ckpt-2.data-00000-of-00001", "out", "leave out the ending"),
    ("model.ckpt-3", "out", "there is no checkpoint of this name"),
    ("model.ckpt-2", "", "is a folder, wanted the name of the new checkpoint"),
    ("model.ckpt-2", "out.index", "is the name of one file of a checkpoint"),
    ("empty", "out", "is a folder without a checkpoint"),
    ("broken", "out", "cannot be read"),
    ("short", "out", "the file is cut off"),
])
def test_wrong_paths(trained, capsys, source, target, message):
  (trained / "empty").mkdir(exist_ok=True)
  (trained / "broken.index").write_text("no table")
  (trained / "short.index").write_bytes(
      (trained / "model.ckpt-2.index").read_bytes())
  (trained / "short.data-00000-of-00001").write_bytes(b"too short")
  before = sorted(path.name for path in trained.iterdir())
  status = strip_checkpoint.main(
      [str(trained / source), str(trained / target) if target
       else str(trained)])
  assert status == 1
  error = capsys.readouterr().err
  assert error.startswith("error: ") and message in error
  assert sorted(path.name for path in trained.iterdir()) == before


def test_what_is_there_is_not_overwritten(trained, tmp_path, capsys):
  (tmp_path / "old.data-00000-of-00001").write_text("precious")
  assert strip_checkpoint.main(
      [str(trained / "model.ckpt-2"), str(tmp_path / "old")]) == 1
  assert "exists already" in capsys.readouterr().err
  assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]
