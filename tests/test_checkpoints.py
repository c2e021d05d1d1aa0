"""Which checkpoint is the newest whole one, whatever happened to the folder."""
import logging
import os

from google.protobuf import text_format
import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from multigpu import checkpoints
from multigpu import saving
from multigpu.errors import UserError

SIZE = 1000


@pytest.fixture(autouse=True)
def forget_warnings():
  checkpoints._warned.clear()


@pytest.fixture
def folder(tmp_path):
  """Checkpoints of the steps 10, 20 and 30, as Estimator leaves them."""
  save_steps(tmp_path, [10, 20, 30])
  return tmp_path


def save_steps(folder, steps, saver_class=tf.train.Saver, restored=None,
               spoil=None, **opts):
  """Saves step after step; the weights are the number of the step."""
  with tf.Graph().as_default(), tf.Session() as session:
    step = tf.train.get_or_create_global_step()
    weights = tf.get_variable("w", [SIZE], use_resource=True)
    saver = saver_class(**opts)
    if saver_class is not tf.train.Saver:
      saver.build()
    session.run(tf.global_variables_initializer())
    if restored:
      saver.restore(session, restored)
    for number in steps:
      value = np.nan if number == spoil else number
      weights.load(np.full([SIZE], value, np.float32), session)
      step.load(number, session)
      saver.save(session, str(folder / "model.ckpt"), global_step=number)
    return session.run(weights)


def data_of(folder, step):
  return folder / ("model.ckpt-%d.data-00000-of-00001" % step)


def truncate(path):
  path.write_bytes(path.read_bytes()[:-1])


def damage_data(folder):
  truncate(data_of(folder, 30))


def lose_data(folder):
  data_of(folder, 30).unlink()


def lose_index(folder):
  (folder / "model.ckpt-30.index").unlink()


def damage_index(folder):
  truncate(folder / "model.ckpt-30.index")


def empty_index(folder):
  (folder / "model.ckpt-30.index").write_bytes(b"")


@pytest.mark.parametrize("damage", [
    damage_data, lose_data, lose_index, damage_index, empty_index])
def test_an_incomplete_newest_checkpoint(folder, damage, caplog):
  damage(folder)
  with caplog.at_level(logging.WARNING):
    assert checkpoints.newest(str(folder)) == str(folder / "model.ckpt-20")
    assert checkpoints.latest_step(str(folder)) == 20
  message, = [record.getMessage() for record in caplog.records
              if record.name == checkpoints.__name__]
  assert "model.ckpt-30 is incomplete (" in message
  assert message.endswith("newest whole checkpoint is " +
                          str(folder / "model.ckpt-20"))
  checkpoints.repair(str(folder))
  state = tf.train.get_checkpoint_state(str(folder))
  assert state.model_checkpoint_path == str(folder / "model.ckpt-20")
  assert [os.path.basename(path)
          for path in state.all_model_checkpoint_paths] == [
              "model.ckpt-10", "model.ckpt-20"]



@pytest.mark.parametrize("content", [
    None, b"", b"\x00\xff garbage \"", b'model_checkpoint_path: "model.ck',
    b'model_checkpoint_path: "/elsewhere/model.ckpt-30"\n'])
def test_a_file_checkpoint_that_is_no_use(folder, content, caplog):
  state = folder / "checkpoint"
  if content is None:
    state.unlink()
  else:
    state.write_bytes(content)
  with caplog.at_level(logging.WARNING):
    assert checkpoints.newest(str(folder)) == str(folder / "model.ckpt-30")
  assert "model.ckpt-30" in caplog.text
  checkpoints.repair(str(folder))
  assert tf.train.latest_checkpoint(str(folder)) == str(
      folder / "model.ckpt-30")


def test_a_whole_folder_is_left_alone(folder, caplog):
  """Also where `checkpoint` names an older one: then somebody wants that."""
  text = 'model_checkpoint_path: "model.ckpt-20"\n'
  (folder / "checkpoint").write_text(text)
  assert checkpoints.newest(str(folder)) == str(folder / "model.ckpt-20")
  checkpoints.repair(str(folder))
  assert (folder / "checkpoint").read_text() == text
  assert not [record for record in caplog.records
              if record.name == checkpoints.__name__]


def test_no_whole_checkpoint_at_all(tmp_path, caplog):
  assert checkpoints.newest(str(tmp_path / "absent")) is None
  assert checkpoints.latest_step(str(tmp_path)) == 0
  checkpoints.repair(str(tmp_path))
  assert not caplog.records
  save_steps(tmp_path, [30])
  lose_data(tmp_path)
  assert checkpoints.newest(str(tmp_path)) is None
  assert "there is no whole checkpoint" in caplog.text
  checkpoints.repair(str(tmp_path))
  assert not (tmp_path / "checkpoint").exists()


def save_whole(folder, steps, **settings):
  return save_steps(folder, steps, saving.WholeSaver, output_dir=str(folder),
                    **settings)


def test_older_ones_go_when_the_new_one_is_there(tmp_path):
  save_whole(tmp_path, [1, 2, 3], max_to_keep=2)
  assert sorted(path.name for path in tmp_path.glob("*.index")) == [
      "model.ckpt-2.index", "model.ckpt-3.index"]


def test_values_that_are_not_finite_are_not_saved(folder):
  with pytest.raises(UserError) as error:
    save_whole(folder, [40, 50], spoil=50)
  for part in ("model.ckpt-50 was not saved: 1 of 1 variables",
               "the first is w", "lower --learning_rate",
               "last good checkpoint is %s" % (folder / "model.ckpt-40")):
    assert part in str(error.value)
  assert not list(folder.glob("*50*"))


def test_a_restored_checkpoint_is_not_written_again(folder):
  before = os.stat(str(data_of(folder, 30))).st_mtime_ns
  (folder / "model.ckpt-30.meta").unlink()
  save_whole(folder, [30, 40], restored=str(folder / "model.ckpt-30"))
  assert os.stat(str(data_of(folder, 30))).st_mtime_ns == before
  assert (folder / "model.ckpt-30.meta").exists()
  assert checkpoints.latest_step(str(folder)) == 40


def test_a_full_disk_costs_no_checkpoint(folder):
  """Files may have 2000 bytes: neither the data nor the meta file fit."""
  resource = pytest.importorskip("resource")
  before = sorted(path.name for path in folder.iterdir())
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
  try:
    with pytest.raises(UserError) as error:
      save_whole(folder, [40], max_to_keep=1)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  for part in ("cannot write %s (" % (folder / "model.ckpt-40"),
               "MB are free there", "Free some space",
               "last good checkpoint is %s" % (folder / "model.ckpt-30")):
    assert part in str(error.value)
  assert sorted(path.name for path in folder.iterdir()) == before
  assert checkpoints.latest_step(str(folder)) == 30


def test_a_checkpoint_that_cannot_be_restored(folder):
  data = data_of(folder, 30)
  data.write_bytes(bytes(len(data.read_bytes())))  # its checksum is wrong
  with pytest.raises(UserError, match="cannot restore .*model.ckpt-30: "):
    save_whole(folder, [40], restored=str(folder / "model.ckpt-30"))


@pytest.mark.parametrize("first, last, saved", [
    (0, 7, [0, 3, 6, 7]), (0, 6, [0, 3, 6]), (4, 8, [4, 7, 8])])
def test_steps_that_are_saved(tmp_path, first, last, saved):
  """At the start, every three steps and at the end; the graph beside them."""
  with tf.Graph().as_default() as graph:
    step = tf.get_variable("global_step", initializer=np.int64(first),
                           trainable=False, collections=[
                               tf.GraphKeys.GLOBAL_VARIABLES,
                               tf.GraphKeys.GLOBAL_STEP])
    tf.constant(b"\xff\n\"'", name="text")
    tf.constant([1.0 / 3.0, 1e-40, -0.0], name="numbers")
    train_op = tf.assign_add(step, 1)
    tf.add_to_collection(tf.GraphKeys.SAVERS, saving.WholeSaver(
        str(tmp_path), max_to_keep=None))
    with tf.train.SingularMonitoredSession(
        hooks=[saving.CheckpointHook(str(tmp_path), 3),
               tf.train.StopAtStepHook(last_step=last)]) as session:
      while not session.should_stop():
        session.run(train_op)
    wanted = graph.as_graph_def(add_shapes=True)
  assert sorted(int(path.stem.split("-")[1])
                for path in tmp_path.glob("*.index")) == saved
  written = text_format.Parse((tmp_path / "graph.pbtxt").read_text(),
                              tf.GraphDef())
  assert written == wanted
  assert checkpoints.latest_step(str(tmp_path)) == last
