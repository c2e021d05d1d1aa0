"""What the run scripts do when something goes wrong on the way."""
import os
import resource
import signal
import subprocess
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import interrupted_runs
import modeling
from multigpu import checkpoints
from multigpu import fitting
from multigpu.model_fn import ModelSettings, build_model_fn
import programs
from tasks.pretraining_head import make_pretraining_head
from tasks.pretraining_records import record_table
from test_run_classifier import MODEL, case


@pytest.fixture
def task(tmp_path):
  interrupted_runs.write_task(tmp_path, train_paragraphs=20, dev_paragraphs=2)
  return tmp_path


def start(folder, **flags):
  """Starts a run of that task; its lines come through a pipe."""
  return subprocess.Popen(
      interrupted_runs.squad_command(folder, folder / "out", **flags),
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
      start_new_session=True, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))


def finish(process):
  output, _ = process.communicate(timeout=300)
  return output


def all_values(folder):
  """The values of all checkpoints in a folder: {path: [array]}."""
  found = {}
  for index in sorted(folder.glob("model.ckpt-*.index")):
    path = str(index)[:-len(".index")]
    reader = tf.train.load_checkpoint(path)
    found[os.path.basename(path)] = [
        reader.get_tensor(name) for name in reader.get_variable_to_shape_map()]
  return found


@pytest.mark.slow
def test_a_training_that_diverges_saves_nothing_of_it(task):
  """Every second step is saved, and the loss of the second one is NaN."""
  process = start(task, learning_rate=3e38, warmup_proportion=0,
                  save_checkpoints_steps=2)
  output = finish(process)
  assert process.returncode == 1, output
  assert "Traceback" not in output
  last = output[output.index("ERROR: "):]
  for part in ("step 2: the loss is nan and the norm of the gradient nan",
               "lower --learning_rate", "--precision=fp32", "check the data",
               "last good checkpoint is %s." % (task / "out" / "model.ckpt-0")):
    assert part in last
  found = all_values(task / "out")
  assert list(found) == ["model.ckpt-0"]
  assert all(np.isfinite(value).all() for value in found["model.ckpt-0"])


@pytest.mark.slow
@pytest.mark.parametrize("number, status", [
    (signal.SIGTERM, 143),
    pytest.param(signal.SIGINT, 130, marks=pytest.mark.once("tf2"))])
def test_a_signal_in_the_training_saves_the_step(task, number, status):
  process = start(task, num_train_epochs=500, save_checkpoints_steps=100000)
  for line in process.stdout:
    if "step 1/5000 " in line:
      break
  time.sleep(1)
  begin = time.time()
  os.kill(process.pid, number)
  output = finish(process)
  assert time.time() - begin < 30
  assert process.returncode == status, output
  assert "Traceback" not in output
  step = checkpoints.latest_step(str(task / "out"))
  assert 1 <= step < 5000
  assert "Stopped by %s" % signal.Signals(number).name in output
  assert not (task / "out" / "predictions.json").exists()


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_a_full_disk_ends_a_run_with_a_message(task):
  """Files may have 1 MB: graph.pbtxt is larger, which comes before all."""
  command = interrupted_runs.squad_command(task, task / "out")
  done = subprocess.run(
      command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
      timeout=300, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""),
      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                            (10 ** 6, 10 ** 6)))
  assert done.returncode == 1, done.stdout
  assert "ERROR: cannot write" in done.stdout
  assert "Traceback" not in done.stdout


def write_pretraining_checkpoint(shared, folder):
  """What a pre-training run leaves, with the config of the cases."""
  config = modeling.BertConfig.from_json_file(
      str(shared / "cases" / "_shared" / "bert_config.json"))
  shapes = fitting.model_shapes(
      build_model_fn(make_pretraining_head(config), ModelSettings(config)),
      record_table(32, 5))
  with tf.Graph().as_default(), tf.Session() as session:
    for name, shape in shapes.items():
      for suffix in ("", "/adam_m", "/adam_v"):
        tf.get_variable(name + suffix, shape)
    tf.get_variable("global_step", initializer=np.int64(20))
    session.run(tf.global_variables_initializer())
    return tf.train.Saver().save(session, str(folder / "model.ckpt"), 20)


@pytest.mark.parametrize("flags", [
    dict(do_train=True, num_train_epochs=8, train_batch_size=4),
    dict(do_predict=True)])
def test_case_52_output_dir_of_another_model(shared, tmp_path, flags):
  path = write_pretraining_checkpoint(shared, tmp_path)
  before = sorted(os.listdir(str(tmp_path)))
  outcome = programs.run("run_classifier_multigpu.py", case(shared, "23"),
                         output_dir=tmp_path, **dict(MODEL, **flags))
  assert outcome.status == 1, outcome.output
  assert "Traceback" not in outcome.output
  for part in ("ERROR: --output_dir already holds %s, a checkpoint of another "
               "model" % path, "not in the checkpoint (2):",
               "output_bias [2]", "cls/seq_relationship/output_weights",
               "another --output_dir, with --init_checkpoint=%s " % path):
    assert part in outcome.output
  assert "being made" not in outcome.output
  assert sorted(os.listdir(str(tmp_path))) == before


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_case_54_the_size_of_a_training_checkpoint(shared, tmp_path):
  names = {}
  for num_replicas, batch_size in ((1, 6), (3, 2)):
    out = tmp_path / str(num_replicas)
    outcome = programs.run(
        "run_classifier_multigpu.py", case(shared, "23"), output_dir=out,
        do_train=True, num_train_epochs=1, num_gpus=num_replicas,
        train_batch_size=batch_size, **MODEL)
    assert outcome.status == 0, outcome.output
    names[num_replicas] = tf.train.list_variables(str(out / "model.ckpt-1"))
  assert names[3] == names[1]
  sizes = {name: int(np.prod(shape)) for name, shape in names[1]}
  assert sizes.pop("global_step") == 1
  weights = sum(size for name, size in sizes.items() if "/adam_" not in name)
  assert sum(sizes.values()) == 3 * weights
  data = out / "model.ckpt-1.data-00000-of-00001"
  assert data.stat().st_size == 4 * 3 * weights + 8
