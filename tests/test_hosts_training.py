"""Several hosts train what one does; each host is a process on this machine."""
import json
import re
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from conftest import ROOT
from multigpu import records
import programs
from tasks import pretraining_records

SAMPLE = ROOT / "samples" / "squad"
LENGTH = 24
TASKS = ("squad", "classifier", "pretraining")


@pytest.fixture
def model(tmp_path):
  """A model of one layer without dropout; the flags for it."""
  config = json.loads((SAMPLE / "bert_config.json").read_text())
  config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                num_hidden_layers=1, hidden_size=16, num_attention_heads=2,
                intermediate_size=32)
  (tmp_path / "bert_config.json").write_text(json.dumps(config))
  return dict(bert_config_file="bert_config.json", learning_rate=1e-3, seed=3,
              do_train=True)


def squad(folder, model):
  del folder
  return "run_squad_multigpu.py", dict(
      model, vocab_file=SAMPLE / "vocab.txt", train_file=SAMPLE / "train.json",
      do_predict=True, predict_file=SAMPLE / "dev.json", predict_batch_size=50,
      num_train_epochs=0.06, max_seq_length=80, doc_stride=32,
      max_query_length=24)


def classifier(folder, model):
  """The rows come in buckets."""
  words = [word for word in (SAMPLE / "vocab.txt").read_text().split()
           if word.isalpha()]
  draw = np.random.RandomState(1)
  for name in ("train", "dev"):
    rows = ["text\tlabel"] + [
        "%s\t%s" % (" ".join(draw.choice(words, draw.randint(1, 20))),
                    draw.choice(["a", "b", "c"])) for _ in range(60)]
    (folder / (name + ".tsv")).write_text("\n".join(rows) + "\n")
  return "tests/without_dropout.py", dict(
      model, task_name="tsv", text_a_column="text", label_column="label",
      data_dir=".", vocab_file=SAMPLE / "vocab.txt", max_seq_length=LENGTH,
      bucket_by_length=True, num_train_epochs=1, do_eval=True)


def pretraining(folder, model):
  """Rows with unevenly many masked tokens, in micro-batches."""
  table = pretraining_records.record_table(LENGTH, 4)
  draw = np.random.RandomState(2)
  for part in range(2):
    with records.RecordWriter(
        str(folder / ("rows-%d.tfrecord" % part)), table) as writer:
      for _ in range(40):
        length, masked = draw.randint(6, LENGTH + 1), draw.randint(0, 5)
        ids = [int(i) for i in draw.randint(5, 276, LENGTH)]
        writer.write({
            "input_ids": ids,
            "input_mask": [1] * length + [0] * (LENGTH - length),
            "segment_ids": [0] * LENGTH,
            "masked_lm_positions": [1, 2, 3, 4], "masked_lm_ids": ids[:4],
            "masked_lm_weights": [1.0] * masked + [0.0] * (4 - masked),
            "next_sentence_labels": [int(draw.randint(2))]})
  return "run_pretraining_multigpu.py", dict(
      model, input_file="rows-*.tfrecord", max_seq_length=LENGTH,
      max_predictions_per_seq=4, gradient_accumulation_steps=2,
      num_train_steps=5, num_warmup_steps=2, do_eval=True)


def make_task(name, folder, model):
  return {"squad": squad, "classifier": classifier,
          "pretraining": pretraining}[name](folder, model)


def read_checkpoint(folder):
  """{name: value} of the newest checkpoint: weights, slots and step."""
  reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder)))
  return {name: reader.get_tensor(name)
          for name in reader.get_variable_to_shape_map()}


def assert_same_checkpoint(folder, other, atol=2e-5):
  one, two = read_checkpoint(folder), read_checkpoint(other)
  assert set(one) == set(two)
  assert any(name.endswith("/adam_v") for name in one)
  for name, value in one.items():
    np.testing.assert_allclose(two[name], value, atol=atol, rtol=1e-4,
                               err_msg=name)


def read_curves(folder):
  """{name: {step: value}} of the training."""
  return {(value.tag, event.step): value.simple_value
          for path in sorted(folder.glob("events.out.tfevents.*"))
          for event in tf.train.summary_iterator(str(path))
          for value in event.summary.value}


def last_loss(outcome):
  return float(re.search(r"Loss for final step: ([0-9.]*[0-9])",
                         outcome.output).group(1))


@pytest.mark.slow
@pytest.mark.parametrize("task", [
    task if task == "squad" else pytest.param(task, marks=pytest.mark.long)
    for task in TASKS])
def test_hosts_train_what_one_does(tmp_path, model, task):
  script, flags = make_task(task, tmp_path, model)
  for num_replicas in (1, 2):
    outcome = programs.run(
        script, tmp_path, num_gpus=num_replicas,
        train_batch_size=8 // num_replicas, output_dir=str(num_replicas),
        **flags)
    assert outcome.status == 0, outcome.output
  hosts = programs.Hosts(script, tmp_path, train_batch_size=4,
                         output_dir="hosts", **flags).wait()
  for host in hosts:
    assert host.status == 0, host.output
    assert "devices 2 hosts x 1 CPU replica" in host.output
    assert last_loss(host) == pytest.approx(last_loss(outcome), abs=1e-5)
  assert "are the chief's" in hosts[1].output
  one = read_curves(tmp_path / "1")
  for name in ("2", "hosts"):
    assert_same_checkpoint(tmp_path / "1", tmp_path / name)
    assert read_curves(tmp_path / name) == pytest.approx(one, abs=1e-5)
  # Not even another order of sums.
  assert_same_checkpoint(tmp_path / "2", tmp_path / "hosts", atol=1e-6)
  # Results are written by the chief; the others leave only their records.
  result = "predictions.json" if task == "squad" else "eval_results.txt"
  assert (tmp_path / "hosts" / result).exists()
  left = {path.name.split(".")[0] for path in
          (tmp_path / "hosts" / "worker-1").rglob("*")}
  assert left <= {"train", "eval", "labels"}


def wait_for(path, hosts):
  deadline = time.monotonic() + 300
  while not path.exists():
    assert time.monotonic() < deadline
    assert all(one.poll() is None for one in hosts.processes), (
        hosts.wait()[0].output)
    time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("killed", [0, 1])
def test_a_host_dies_and_all_start_again(tmp_path, model, killed):
  script, flags = make_task("pretraining", tmp_path, model)
  flags.update(num_train_steps=100, save_checkpoints_steps=10,
               train_batch_size=4, do_eval=False)
  hosts = programs.Hosts(script, tmp_path, output_dir="hosts", **flags)
  wait_for(tmp_path / "hosts" / "model.ckpt-10.index", hosts)
  hosts.processes[killed].kill()
  ended = hosts.wait()
  assert ended[killed].status == -9
  other = ended[1 - killed]
  assert other.status == 1
  assert "ERROR: %s (localhost:" % ("chief", "worker 0")[killed] in other.output
  assert "has ended" in other.output

  # Not with another folder on one of them, nor other settings.
  for of_worker, message in (
      (dict(output_dir="elsewhere"), "let all hosts see one --output_dir"),
      (dict(seed=4), "seed: 3 on chief")):
    for host in programs.Hosts(script, tmp_path, output_dir="hosts",
                               of_worker=of_worker, **flags).wait():
      assert host.status == 1
      assert message in host.output
      assert "Traceback" not in host.output

  for host in programs.Hosts(script, tmp_path, output_dir="hosts",
                             **flags).wait():
    assert host.status == 0, host.output
    assert "Going on from step" in host.output
  one = programs.run(script, tmp_path, num_gpus=2, output_dir="one", **flags)
  assert one.status == 0, one.output
  assert_same_checkpoint(tmp_path / "one", tmp_path / "hosts")


@pytest.mark.slow
def test_without_training_there_is_work_for_the_chief_only(tmp_path, model):
  script, flags = make_task("pretraining", tmp_path, model)
  flags.update(do_train=False, output_dir="hosts")
  chief, worker = programs.Hosts(script, tmp_path, **flags).wait()
  assert (chief.status, worker.status) == (0, 0), worker.output
  assert "only the chief has something to do" in worker.output
  assert (tmp_path / "hosts" / "eval_results.txt").exists()
