"""How fast text becomes what a run reads, and logits become answers.

    .venv/tf2/bin/python benchmarks/data.py \\
        --input_file TEXT.txt --vocab_file VOCAB.txt \\
        --against_python PYTHON_WITH_TOKENIZERS \\
        --train_file TRAIN.json --predict_file DEV.json

Tokens: each line of the text becomes its ids, in one thread. FullTokenizer is
compared with Hugging Face's tokenizer in Rust, BertWordPieceTokenizer, where
--against_python names an interpreter with the package `tokenizers`, and with a
straightforward one. Each runs in a process of its own, in turn; vocabularies
are read before. The ids of all must be equal. FullTokenizer remembers words:
its second pass over the text shows what a second epoch would cost. Hugging
Face's also takes all lines in one call, which spares it the way between Python
and Rust.

Features (--train_file), answers (--predict_file) and pre-training instances
are the figures of squad_features.py, squad_answers.py and pretraining_data.py,
which compare with straightforward programs; their tables come first.
"""
import argparse
import functools
import json
import os
import pathlib
import sys
import tempfile

import processes
from token_passes import report_passes

HERE = pathlib.Path(__file__).resolve().parent
FIRST_PASS = "project"


def parse_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--input_file", required=True, help="a sentence a line")
  parser.add_argument("--vocab_file", required=True)
  parser.add_argument("--cased", dest="do_lower_case", action="store_false")
  parser.add_argument("--against_python")
  parser.add_argument("--train_file", help="SQuAD 1.1 format")
  parser.add_argument("--predict_file", help="SQuAD format")
  parser.add_argument("--no_instances", action="store_true",
                      help="leave the pre-training instances out")
  parser.add_argument("--num_workers", type=int, default=2)
  parser.add_argument("--runs", type=int, default=5)
  parser.add_argument("--json", help="write the figures to this file")
  parser.add_argument("--child", choices=["project", "straightforward"],
                      help=argparse.SUPPRESS)
  parser.add_argument("--ids_file", help=argparse.SUPPRESS)
  return parser.parse_args()


def run_child(arguments):
  """Tokenizes the text and prints the seconds of each pass."""
  import squad_features  # finds the project's modules
  import tokenization
  make = {"project": tokenization.FullTokenizer,
          "straightforward": squad_features.PlainTokenizer}[arguments.child]
  tokenizer = make(arguments.vocab_file, arguments.do_lower_case)

  def line_by_line(lines):
    for line in lines:
      yield tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line))

  passes = {"": line_by_line}
  if arguments.child == "project":
    passes[", second pass"] = line_by_line
  report_passes(arguments, passes)


def tokenizer_commands(arguments):
  """Returns {prefix of the names of programs: command}."""
  shared = ["--input_file", arguments.input_file,
            "--vocab_file", arguments.vocab_file]
  shared += ["--cased"] * (not arguments.do_lower_case)
  commands = {
      name: [sys.executable, str(HERE / "data.py"), "--child", name] + shared
      for name in ("project", "straightforward")}
  if arguments.against_python:
    commands["Hugging Face, "] = [
        arguments.against_python, str(HERE / "rust_tokenizer.py")] + shared
  return commands


def assert_same_ids(commands):
  """Runs each program once and compares what it makes of each line."""
  with tempfile.TemporaryDirectory() as folder:
    made = {}
    for name, command in commands.items():
      path = os.path.join(folder, "ids")
      processes.run(command + ["--ids_file", path])
      made[name] = pathlib.Path(path).read_text().split("\n")
  expected = made["straightforward"]
  for name, lines in made.items():
    if lines == expected:
      continue
    number = next((i for i, pair in enumerate(zip(lines, expected))
                   if pair[0] != pair[1]), min(len(lines), len(expected)))
    sys.exit("%s: line %d has other ids than from the straightforward "
             "tokenizer:\n%s\n%s" % (name.strip(", "), number + 1,
                                     lines[number], expected[number]))


def measure_tokenizers(arguments):
  """Returns {program: figures}."""
  commands = tokenizer_commands(arguments)
  assert_same_ids(commands)
  results = {}
  for prefix, outcomes in processes.run_in_turn(
      commands, arguments.runs).items():
    for name in outcomes[0]:
      some = [outcome[name] for outcome in outcomes]
      result = processes.summarise(some, "tokens")
      result["tokens_per_s"] = result["tokens"] / result["wall_s"]
      results[prefix + name] = result
  return results


def run_benchmark(arguments, script, *options):
  """Runs another program of this folder; returns its JSON."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "figures.json")
    command = [sys.executable, str(HERE / script), "--json", path,
               "--vocab_file", arguments.vocab_file]
    command += ["--cased"] * (not arguments.do_lower_case)
    processes.run_aloud(command + list(options))
    with open(path, encoding="utf-8") as reader:
      return json.load(reader)


def measure_features(arguments):
  """Returns features/s: {program: number}."""
  report = run_benchmark(
      arguments, "squad_features.py", "--train_file", arguments.train_file,
      "--runs", str(arguments.runs), "--workers", str(arguments.num_workers))
  return {name: figures["features_per_s"]
          for name, figures in report["programs"].items()}


def measure_answers(arguments):
  """Returns answers/s."""
  report = run_benchmark(
      arguments, "squad_answers.py", "--predict_file", arguments.predict_file,
      "--repeats", str(arguments.runs))
  return {"%s, %s" % (name, version): report["questions"] / figures["wall_s"]
          for version in ("v1.1", "v2.0")
          for name, figures in report[version].items()}


def measure_instances(arguments):
  """Returns instances/s."""
  report = run_benchmark(
      arguments, "pretraining_data.py", "--input_file", arguments.input_file,
      "--runs", str(arguments.runs),
      "--workers", "1", str(arguments.num_workers))
  return {name: report["records"] / figures["wall_s"]
          for name, figures in report["programs"].items()
          if not name.startswith("import")}


def choose_parts(arguments):
  """Returns {unit: function that measures it}."""
  parts = {}
  if arguments.train_file:
    parts["features/s"] = measure_features
  if arguments.predict_file:
    parts["answers/s"] = measure_answers
  if arguments.do_lower_case and not arguments.no_instances:
    parts["instances/s"] = measure_instances
  return {unit: functools.partial(measure, arguments)
          for unit, measure in parts.items()}


def main():
  arguments = parse_arguments()
  if arguments.child:
    run_child(arguments)
    return
  # One thread: the number of cores is no merit of a tokenizer.
  os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
  report = {"runs": arguments.runs, "tokenizers": measure_tokenizers(arguments)}
  parts = choose_parts(arguments)
  for unit, measure in parts.items():
    report[unit] = measure()
  tokenizers = report["tokenizers"]
  print("%-42s %8s %8s %10s %8s" % ("tokenizer", "wall s", "CPU s",
                                    "tokens/s", "of first"))
  for name, result in tokenizers.items():
    print("%-42s %8.3f %8.3f %10.0f %8.2f" % (
        name, result["wall_s"], result["cpu_s"], result["tokens_per_s"],
        result["tokens_per_s"] / tokenizers[FIRST_PASS]["tokens_per_s"]))
  for unit in parts:
    for name, speed in report[unit].items():
      print("%-42s %10.0f %s" % (name, speed, unit))
  processes.write_json(arguments.json, report)


if __name__ == "__main__":
  main()
