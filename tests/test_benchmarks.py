"""The programs of benchmarks/ that no other test uses, at tiny sizes."""
import json
import subprocess
import sys

import pytest

from benchmarks import plot
from benchmarks import processes
from conftest import ROOT

SAMPLE = ROOT / "samples" / "squad"


def bench(script, json_file, *options):
  """Runs a benchmark; returns its table and its figures."""
  done = subprocess.run(
      [sys.executable, str(ROOT / "benchmarks" / script), "--json",
       str(json_file)] + list(map(str, options)),
      capture_output=True)
  assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
  return done.stdout.decode("utf-8"), json.loads(json_file.read_text())


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_replicas_and_what_they_reduce(tmp_path):
  table, report = bench(
      "replicas.py", tmp_path / "figures.json", "--bert_config_file",
      SAMPLE / "bert_config.json", "--batch", 4, "--seq_length", 16,
      "--replicas", 1, 2, "--threads", 0, "--steps", 1, "--runs", 1,
      "--all_reduce_packs", 3)
  one, two = report["runs"]
  assert (one["replicas"], two["replicas"]) == (1, 2)
  assert two["ratio_wall_s"] == two["wall_s"] / one["wall_s"] > 0
  assert two["ops"] > one["ops"] > 0
  assert (one["packs"], one["bytes_reduced"]) == (0, 0)
  config = json.loads((SAMPLE / "bert_config.json").read_text())
  # All weights but the pooler, which has no part in the loss.
  width, inner = config["hidden_size"], config["intermediate_size"]
  layer = (4 * width * (width + 1) + (width + 1) * inner + (inner + 1) * width
           + 4 * width)
  num_weights = (
      width * (config["vocab_size"] + config["max_position_embeddings"]
               + config["type_vocab_size"] + 2)
      + config["num_hidden_layers"] * layer + 2 * width + 2)
  assert (two["packs"], two["bytes_reduced"]) == (3, 4 * num_weights)
  assert table.count("\n") == 4


def write_text(path, lines):
  path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
  return path


@pytest.mark.slow
def test_tokenizers_and_where_their_ids_differ(tmp_path):
  text = write_text(tmp_path / "text.txt", ["The boats,  sailing!", "", "it"])
  vocab = write_text(tmp_path / "vocab.txt", [
      "[UNK]", "the", "boat", "##s", ",", "sail", "##ing", "!"])
  table, report = bench(
      "data.py", tmp_path / "figures.json", "--input_file", text,
      "--vocab_file", vocab, "--runs", 1, "--no_instances")
  assert set(report["tokenizers"]) == {
      "project", "project, second pass", "straightforward"}
  for name, figures in report["tokenizers"].items():
    assert figures["tokens"] == 8, name  # boat ##s, sail ##ing, [UNK]
    assert name in table


def test_other_ids_end_the_measurement(tmp_path, monkeypatch):
  monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
  from benchmarks import data

  def write(ids):
    # The path follows --ids_file.
    program = "import sys; open(sys.argv[2], 'w').write(%r); print(0)" % ids
    return [sys.executable, "-c", program]

  commands = {name: write("1 2\n3\n")
              for name in ("straightforward", "project")}
  data.assert_same_ids(commands)
  commands["Hugging Face, "] = write("1 2\n4\n")
  with pytest.raises(SystemExit) as stop:
    data.assert_same_ids(commands)
  assert "Hugging Face: line 2" in str(stop.value)


def test_processes_take_turns_and_tell_why_they_fail(tmp_path):
  log = tmp_path / "log"
  program = ("open(%r, 'a').write(%%r); print('words'); "
             "print('{\"figures\": [[2, 1], [4, 3]], \"ops\": 7}')" % str(log))
  outcomes = processes.run_in_turn(
      {name: [sys.executable, "-c", program % name] for name in "ab"}, 2)
  assert log.read_text() == "abab"
  assert processes.summarise(outcomes["b"], "ops", "memory_mb") == {
      "wall_s": 3, "cpu_s": 2, "ops": 7}
  with pytest.raises(SystemExit) as stop:
    processes.run([sys.executable, "-c", "raise ValueError('so it is')"])
  assert "so it is" in str(stop.value)


@pytest.mark.parametrize("ending, start", [
    ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_plot_of_steps(tmp_path, monkeypatch, ending, start):
  steps = tmp_path / "step.json"
  steps.write_text(json.dumps({"settings": {"precision": "bf16"}, "programs": {
      "this project": {"version": "TensorFlow 2.15.1", "wall_s": 1.5,
                       "limit_s": 1.0},
      "another": {"version": "PyTorch 2", "wall_s": 2.0}}}))
  pictures = []
  for name in ("one", "two"):
    output = tmp_path / ("%s.%s" % (name, ending))
    monkeypatch.setattr(sys, "argv", ["plot.py", str(steps), str(steps),
                                      "--output", str(output)])
    plot.main()
    pictures.append(output.read_bytes())
  assert pictures[0].startswith(start)
  assert pictures[0] == pictures[1]
  labels = [label for label, _ in plot.read_steps([str(steps)])]
  assert labels == ["this project\nTensorFlow 2.15.1, bf16",
                    "another\nPyTorch 2, bf16"]


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_parts_of_a_step(tmp_path):
  table, parts = bench(
      "step_parts.py", tmp_path / "figures.json", "--bert_config_file",
      SAMPLE / "bert_config.json", "--batch", 2, "--seq_length", 16,
      "--runs", 1)
  assert (parts["AdamW in small operations"]["ops"]
          > parts["gelu with pow"]["ops"] > parts["as it is"]["ops"])
  for name in parts:
    assert name in table
