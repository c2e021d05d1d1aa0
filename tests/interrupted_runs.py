"""Starts a run again and again and kills it: the machinery of test_soak.

What is killed is a launcher's business: a function `launch(output_dir, log)`
that starts a whole run (one process, or one for each of several hosts) in a
session of its own and returns the Popen of its leader, which ends when the run
does. `on_this_host` makes one for a run on this host.
"""
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

from conftest import ROOT
from multigpu import checkpoints

TIMEOUT = 600
GRACE = 30
RESULTS = ("predictions.json", "nbest_predictions.json", "eval_results.json")
# What there is only while something is being written.
WRITING = ("_temp", ".tmp", "tempstate")


def write_task(folder, train_paragraphs=50, dev_paragraphs=10):
  """Writes a small SQuAD task and a model without dropout to a folder."""
  sample = ROOT / "samples" / "squad"
  for name, count in (("train", train_paragraphs), ("dev", dev_paragraphs)):
    data = json.loads((sample / (name + ".json")).read_text())
    del data["data"][0]["paragraphs"][count:]
    (folder / (name + ".json")).write_text(json.dumps(data))
  config = json.loads((sample / "bert_config.json").read_text())
  config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                num_hidden_layers=1, hidden_size=32, intermediate_size=32)
  (folder / "bert_config.json").write_text(json.dumps(config))


def squad_command(folder, output_dir, **changes):
  """The command of a run on that task: trains, then answers."""
  flags = dict(
      train_file=folder / "train.json", predict_file=folder / "dev.json",
      vocab_file=ROOT / "samples" / "squad" / "vocab.txt",
      bert_config_file=folder / "bert_config.json", output_dir=output_dir,
      do_train=True, do_predict=True, max_seq_length=64, doc_stride=32,
      max_query_length=24, num_gpus=2, device_type="cpu", train_batch_size=4,
      predict_batch_size=16, learning_rate=1e-3, seed=5, num_train_epochs=2,
      save_checkpoints_steps=5)
  flags.update(changes)
  return ([sys.executable, str(ROOT / "run_squad_multigpu.py")] +
          ["--%s=%s" % item for item in sorted(flags.items())])


def on_this_host(folder, **changes):
  """A launcher for one process with two replicas."""
  def launch(output_dir, log):
    return subprocess.Popen(
        squad_command(folder, output_dir, **changes), stdout=log,
        stderr=subprocess.STDOUT, start_new_session=True,
        env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
  return launch


def on_two_hosts(folder, **changes):
  """A launcher for two processes that are two hosts, with a replica each."""
  def launch(output_dir, log):
    command = squad_command(folder, output_dir, num_gpus=1, **changes)
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "two_hosts.py")] + command,
        stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
  return launch


class Soak:
  """One output folder, and what has happened to its runs."""

  def __init__(self, launch, output_dir, seed):
    self.output_dir = output_dir
    self.counts = collections.Counter()
    self.steps = []
    self._launch = launch
    self._random = random.Random(seed)
    self._log = output_dir.parent / (output_dir.name + ".log")

  def finish(self):
    """Starts the run and lets it end; returns seconds to a step, to the end."""
    begin = time.time()
    with self._started() as process:
      self._wait_for_checkpoints(process, 1)
      until_first = time.time() - begin
      status = process.wait(TIMEOUT)
    assert status == 0, self.output()
    return until_first, time.time() - begin

  def interrupt(self, start_seconds):
    """Starts the run and ends it at a random moment.

    A quarter of the runs do not come far: they have a part of the seconds that
    a start takes. The others write some checkpoints first; of these a half are
    killed as soon as a half-written file is seen.
    """
    gentle = self._random.random() < 0.2
    is_start = self._random.random() < 0.25
    count = self._random.randint(1, 3)
    waits_for_write = self._random.random() < 0.5
    delay = self._random.uniform(0.1, start_seconds if is_start else 0.5)
    with self._started() as process:
      if not is_start:
        self._wait_for_checkpoints(process, count)
      is_running = wait(process, delay)
      if is_start:
        moment = "in the start"
      else:
        moment = "in the training"
        if is_running and waits_for_write and self._wait_for_write(process):
          moment = "while a file was written"
      self._end(process, gentle, moment)

  def interrupt_answers(self, last_step, seconds):
    """Kills the run after its last step, within so many seconds."""
    with self._started() as process:
      self._wait_for(process, lambda: latest_step(self.output_dir) == last_step)
      wait(process, self._random.uniform(0, seconds))
      self._end(process, False, "after the last step")

  @contextlib.contextmanager
  def _started(self):
    with self._log.open("wb") as log:
      process = self._launch(self.output_dir, log)
      try:
        yield process
      finally:
        kill_all(process)

  def _end(self, process, gentle, moment):
    if process.poll() is not None:
      assert process.returncode == 0, self.output()
      self.counts["had ended"] += 1
    elif gentle:
      self._terminate(process)
      self.counts["SIGTERM " + moment] += 1
    else:
      os.killpg(process.pid, signal.SIGKILL)
      process.wait()
      self.counts["kill -9 " + moment] += 1
    self.check_files()

  def _wait_for_checkpoints(self, process, count):
    state = self.output_dir / "checkpoint"
    seen = set()

    def have_come():
      if state.exists():
        seen.add(state.read_bytes())
      return len(seen) > count

    if state.exists():
      seen.add(state.read_bytes())
    else:
      seen.add(b"")
    self._wait_for(process, have_come)

  def _wait_for_write(self, process):
    """Waits a few seconds for a half-written file; whether there is one."""
    before = (set(os.listdir(str(self.output_dir)))
              if self.output_dir.is_dir() else set())
    return self._wait_for(process, lambda: self.output_dir.is_dir() and any(
        part in name for name in os.listdir(str(self.output_dir))
        for part in WRITING if name not in before), 5)

  def _wait_for(self, process, condition, seconds=TIMEOUT):
    until = time.time() + seconds
    while time.time() < until and process.poll() is None:
      if condition():
        return True
      time.sleep(0.001)
    return False

  def _terminate(self, process):
    os.kill(process.pid, signal.SIGTERM)
    status = process.wait(GRACE)
    # By the signal itself while Python starts; 0 when it had just ended.
    assert status in (128 + signal.SIGTERM, -signal.SIGTERM, 0), self.output()
    assert "Traceback" not in self.output(), self.output()

  def check_files(self):
    """What lies there under its final name is whole."""
    for name in RESULTS:
      path = self.output_dir / name
      if path.exists():
        json.loads(path.read_text())
    step = latest_step(self.output_dir)
    assert not self.steps or step >= self.steps[-1], (self.steps, step)
    self.steps.append(step)

  def output(self):
    """What the last start has printed."""
    return self._log.read_text(errors="replace")[-6000:]


def latest_step(output_dir):
  return checkpoints.latest_step(str(output_dir))


def wait(process, seconds):
  """Waits; whether the process is still running."""
  try:
    process.wait(seconds)
  except subprocess.TimeoutExpired:
    return True
  return False


def kill_all(process):
  """Ends all that the launcher has started."""
  try:
    os.killpg(process.pid, signal.SIGKILL)
  except ProcessLookupError:
    pass
  process.wait()


def assert_same_results(output_dir, reference_dir):
  """Compares weights, slots and answers."""
  found, wanted = (
      tf.train.load_checkpoint(checkpoints.newest(str(folder)))
      for folder in (output_dir, reference_dir))
  names = wanted.get_variable_to_shape_map()
  assert set(found.get_variable_to_shape_map()) == set(names)
  for name in sorted(names):
    np.testing.assert_allclose(found.get_tensor(name), wanted.get_tensor(name),
                               rtol=1e-5, atol=1e-6, err_msg=name)
  for name in ("predictions.json", "eval_results.json"):
    assert (output_dir / name).read_bytes() == (
        reference_dir / name).read_bytes()
