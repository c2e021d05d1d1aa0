"""scripts/run_*.sh: the commands that they make, and their smoke runs."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest
import tensorflow.compat.v1 as tf

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNTIME = "tf1" if tf.__version__.startswith("1.") else "tf2"
NAMES = ("squad", "classifier", "pretraining")


def run_script(root, name, *arguments, **options):
  """Runs scripts/run_<name>.sh of a project; returns the finished process."""
  return subprocess.run(
      ["bash", str(root / "scripts" / ("run_%s.sh" % name))] +
      [str(argument) for argument in arguments],
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
      stdin=subprocess.DEVNULL, **options)


@pytest.fixture
def project(tmp_path):
  """A project whose Python prints its arguments and says "3" to -c."""
  scripts = tmp_path / "a project" / "scripts"
  shutil.copytree(str(ROOT / "scripts" / "lib"), str(scripts / "lib"))
  for name in NAMES:
    shutil.copy(str(ROOT / "scripts" / ("run_%s.sh" % name)), str(scripts))
  (scripts / "setup.sh").write_text('echo "set up $*"\n')
  python = scripts.parent / ".venv" / "tf2" / "bin" / "python"
  python.parent.mkdir(parents=True)
  python.write_text("#!/bin/sh\n"
                    'if [ "$1" = -c ]; then echo 3; exit; fi\n'
                    'for argument in "$@"; do echo "<$argument>"; done\n')
  python.chmod(0o755)
  return scripts.parent


@pytest.fixture
def here(tmp_path):
  """The user's folder, with a model and empty data files."""
  for name in ("bert/vocab.txt", "bert/bert_config.json",
               "bert/bert_model.ckpt.index", "data/train-v2.0.json",
               "data/dev-v2.0.json", "scratch/vocab.txt",
               "scratch/bert_config.json"):
    path = tmp_path / "here" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
  return tmp_path / "here"


def programs_of(done):
  """Returns {program's name: {flag: value}} of what the script ran."""
  assert done.returncode == 0, done.stdout
  found = {}
  flags = None
  for line in done.stdout.splitlines():
    if not (line.startswith("<") and line.endswith(">")):
      continue
    if not line.startswith("<--"):
      flags = found.setdefault(os.path.basename(line[1:-1]), {})
      continue
    name, value = line[3:-1].split("=", 1)
    flags[name] = value  # the last one counts, as in the programs
  return found


def test_squad_command(project, here):
  done = run_script(
      project, "squad", "--bert_dir=bert", "--data_dir=data", "--version=2.0",
      "--num_train_epochs=4", "--", "--seed=7", "--output_dir=a b",
      cwd=str(here))
  assert "set up tf2\n" in done.stdout
  assert programs_of(done) == {"run_squad_multigpu.py": dict(
      vocab_file="bert/vocab.txt", bert_config_file="bert/bert_config.json",
      init_checkpoint="bert/bert_model.ckpt", do_lower_case="True",
      do_train="True", train_file="data/train-v2.0.json", do_predict="True",
      predict_file="data/dev-v2.0.json", learning_rate="3e-5",
      num_train_epochs="4", max_seq_length="384", doc_stride="128",
      train_batch_size="12", version_2_with_negative="True", num_gpus="3",
      device_type="auto", seed="7", output_dir="a b")}
  # What is printed can be pasted into a shell.
  command, = [line for line in done.stdout.splitlines()
              if line.startswith("run_squad: $ ")]
  pasted = subprocess.check_output(["bash", "-c", command.split("$ ", 1)[1]],
                                   text=True)
  assert pasted in done.stdout
  assert pasted.endswith("<--output_dir=a b>\n")


def test_classifier_command(project, here):
  done = run_script(
      project, "classifier", "--bert_dir=bert", "--data_dir=data",
      "--task_name=tsv", "--label_column=the class", "--do_predict=True",
      "--device_type=cpu", cwd=str(here))
  assert programs_of(done) == {"run_classifier_multigpu.py": dict(
      task_name="tsv", data_dir="data", label_column="the class",
      vocab_file="bert/vocab.txt", bert_config_file="bert/bert_config.json",
      init_checkpoint="bert/bert_model.ckpt", do_lower_case="True",
      do_train="True", do_eval="True", do_predict="True", learning_rate="2e-5",
      num_train_epochs="3", max_seq_length="128", train_batch_size="32",
      num_gpus="1", device_type="cpu", output_dir="output/tsv")}


def test_pretraining_makes_records_and_trains_on_them(project, here):
  done = run_script(
      project, "pretraining", "--bert_dir=scratch", "--from_scratch",
      "--text=*.txt,more/*", "--do_lower_case=False", "--num_train_steps=500",
      "--num_gpus=2", cwd=str(here))
  programs = programs_of(done)
  assert list(programs) == ["create_pretraining_data.py",
                            "run_pretraining_multigpu.py"]
  creation, training = programs.values()
  outputs = creation.pop("output_file").split(",")
  assert outputs == ["output/pretraining/records/part-%d-of-8.tfrecord" % i
                     for i in range(1, 9)]
  assert (here / "output" / "pretraining" / "records").is_dir()
  assert creation == dict(
      input_file="*.txt,more/*", vocab_file="scratch/vocab.txt",
      do_lower_case="False", do_whole_word_mask="False", dupe_factor="5",
      max_seq_length="128", max_predictions_per_seq="20")
  assert training == dict(
      input_file="output/pretraining/records/part-*-of-8.tfrecord",
      bert_config_file="scratch/bert_config.json", do_train="True",
      do_eval="True", max_seq_length="128", max_predictions_per_seq="20",
      num_train_steps="500", num_warmup_steps="50", learning_rate="1e-4",
      train_batch_size="32", num_gpus="2", device_type="auto",
      output_dir="output/pretraining")


def test_pretraining_from_records(project, here):
  done = run_script(project, "pretraining", "--bert_dir=bert",
                    "--records=made/*", cwd=str(here))
  flags = programs_of(done)
  assert list(flags) == ["run_pretraining_multigpu.py"]
  flags = flags["run_pretraining_multigpu.py"]
  assert flags["input_file"] == "made/*"
  assert flags["init_checkpoint"] == "bert/bert_model.ckpt"
  assert flags["learning_rate"] == "2e-5"


DATA = ["--bert_dir=bert", "--data_dir=data"]


@pytest.mark.parametrize("name, arguments, message", [
    ("squad", [], "--bert_dir=DIR is missing"),
    ("squad", ["--bert_dir=bert"], "--data_dir=DIR is missing"),
    ("squad", ["--bert_dir=scratch", "--data_dir=data"],
     "no file scratch/bert_model.ckpt.index"),
    ("squad", DATA, "no file data/train-v1.1.json"),
    ("squad", DATA + ["--version=3"], "'--version=3' does not fit"),
    ("squad", ["--bert_dir", "bert"], "'--bert_dir' does not fit"),
    ("squad", DATA + ["--seed=1"], "go after --"),
    ("squad", ["--smoke"] + DATA, "leave out --bert_dir --data_dir"),
    ("squad", ["--smoke", "--output_dir=bert"], "is not empty"),
    ("classifier", DATA, "--task_name=... is missing"),
    ("classifier", ["--task_name=rte", "--bert_dir=bert", "--data_dir=none"],
     "no folder none"),
    ("classifier", ["--smoke", "--label_column=x"], "leave out --label_column"),
    ("classifier", ["--smoke", "--output_dir=bert"], "is not empty"),
    ("pretraining", ["--bert_dir=bert"], "--text=FILES or --records=FILES"),
    ("pretraining", ["--bert_dir=bert", "--text=a", "--records=b"], "not both"),
    ("pretraining", ["--bert_dir=bert", "--records=b", "--dupe_factor=2"],
     "leave out --dupe_factor"),
    ("pretraining", ["--bert_dir=scratch", "--text=a"], "--from_scratch"),
    ("pretraining", ["--bert_dir=bert", "--text=a", "--num_train_steps=5k"],
     "--num_train_steps=5k, wanted a number"),
    ("pretraining", ["--smoke", "--output_dir=bert"], "is not empty")])
def test_mistakes_are_found_before_anything_runs(project, here, name, arguments,
                                                 message):
  before = sorted(here.rglob("*"))
  done = run_script(project, name, *arguments, cwd=str(here))
  assert done.returncode == 1
  assert message in done.stdout.splitlines()[-1]
  assert "set up" not in done.stdout
  assert sorted(here.rglob("*")) == before


def smoke(name, output):
  """Runs a smoke mode with this Python's runtime; returns its output folder."""
  if not (ROOT / ".venv" / RUNTIME / "setup-stamp").exists():
    pytest.skip("scripts/setup.sh %s has not been run" % RUNTIME)
  done = run_script(ROOT, name, "--smoke", "--runtime=" + RUNTIME,
                    "--output_dir=%s" % output, cwd=str(output.parent),
                    timeout=600)
  assert done.returncode == 0, done.stdout
  assert "2 CPU replicas" in done.stdout
  return output


def read_results(output):
  lines = (output / "eval_results.txt").read_text().splitlines()
  return {name: float(value)
          for name, value in (line.split(" = ") for line in lines)}


@pytest.mark.once("tf1")
@pytest.mark.slow
def test_smoke_squad(tmp_path):
  output = smoke("squad", tmp_path / "output")
  assert len(json.loads((output / "predictions.json").read_text())) == 200
  scores = json.loads((output / "eval_results.json").read_text())
  assert scores["total"] == 200
  assert (output / "model.ckpt-5.index").exists()


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_smoke_classifier(tmp_path):
  output = smoke("classifier", tmp_path / "output")
  assert read_results(output)["global_step"] == 4
  rows = (output / "test_results.tsv").read_text().splitlines()
  assert [len(row.split("\t")) for row in rows] == [2, 2]
  assert (output / "labels.txt").read_text().split() == ["farm", "town"]


@pytest.mark.once("tf2")
@pytest.mark.slow
def test_smoke_pretraining(tmp_path):
  output = smoke("pretraining", tmp_path / "output")
  results = read_results(output)
  assert results["global_step"] == 5
  assert results["masked_lm_loss"] > 0
  assert results["next_sentence_loss"] > 0
  assert len(list((output / "records").iterdir())) == 8
