"""Times answering SQuAD with batches cut to their longest row, and without.

    .venv/tf2/bin/python benchmarks/padding.py --runs 3 \\
        --predict_file DEV.json --vocab_file VOCAB.txt \\
        --bert_config_file bert_config.json [--init_checkpoint MODEL]

Both go through Run.predict with the same weights (random ones without a
checkpoint), in turn, and are timed from its call to the last row: graph,
session and all. The answers of both must be equal.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# multigpu before TensorFlow: it asks for oneDNN's kernels.
# ruff: noqa: E402
import multigpu  # noqa: F401
import numpy as np
import tensorflow.compat.v1 as tf

import modeling
from multigpu import devices
from multigpu import padding
from multigpu import runs
from multigpu.head import HeadOutput
from tasks import squad_answers
from tasks import squad_data
from tasks import squad_examples
from tasks import squad_head
from tasks import squad_pipeline
import tokenization

PROGRAMS = {"full padding": 0,
            "sorted by length and cut": padding.LENGTH_MULTIPLE}


def parse_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  for name in ("predict_file", "vocab_file", "bert_config_file"):
    parser.add_argument("--" + name, required=True)
  parser.add_argument("--init_checkpoint")
  parser.add_argument("--max_seq_length", type=int, default=384)
  parser.add_argument("--doc_stride", type=int, default=128)
  parser.add_argument("--max_query_length", type=int, default=64)
  parser.add_argument("--batch", type=int, default=8, help="rows a replica")
  parser.add_argument("--num_replicas", type=int, default=1)
  parser.add_argument("--runs", type=int, default=3, help="passes each")
  parser.add_argument("--with_padding_logits", action="store_true",
                      help="also count the answers that are others when the "
                      "logits of padding compete, as in Google's script")
  parser.add_argument("--json", help="write the figures to this file")
  return parser.parse_args()


def head_with_padding_logits(model, features, mode):
  """The model's own logits at all positions."""
  del mode
  start_logits, end_logits = squad_head.span_logits(model)
  return HeadOutput({"unique_ids": features["unique_ids"],
                     "start_logits": start_logits, "end_logits": end_logits})


class Bench:
  """The data, featurized, and the model."""

  def __init__(self, arguments, folder):
    self.tokenizer = tokenization.FullTokenizer(arguments.vocab_file)
    self.settings = squad_data.FeatureSettings(
        arguments.max_seq_length, arguments.doc_stride,
        arguments.max_query_length)
    self.examples = squad_examples.read_squad_examples(
        arguments.predict_file, False, False)
    path = str(pathlib.Path(folder) / "eval.tf_record")
    self.num_rows = squad_pipeline.write_records(
        self.examples, self.tokenizer, self.settings, path, False)
    self.rows = runs.Rows(path, squad_data.record_table(
        arguments.max_seq_length, False))
    self.batch = arguments.batch
    self.run = runs.Run(
        devices.set_up(devices.DeviceSettings(arguments.num_replicas, "auto")),
        modeling.BertConfig.from_json_file(arguments.bert_config_file),
        str(folder), arguments.init_checkpoint)

  def predict(self, head, length_multiple):
    """Returns ((wall, CPU) seconds, logits of all rows)."""
    run = self.run._replace(length_multiple=length_multiple)
    wall, cpu = time.perf_counter(), time.process_time()
    batches = list(run.predict(head, self.rows, self.num_rows, self.batch,
                               title=None))
    return (time.perf_counter() - wall, time.process_time() - cpu), batches

  def answer(self, batches):
    """Returns {question id: text}."""
    return squad_pipeline.answer(
        self.examples, self.tokenizer, self.settings,
        squad_answers.AnswerSettings(), batches).predictions


def largest_difference(batches, others):
  """Between two sets of logits of the same rows."""
  return max(
      float(np.abs(np.concatenate([batch[name] for batch in batches])
                   - np.concatenate([batch[name] for batch in others])).max())
      for name in ("start_logits", "end_logits"))


def measure(bench, num_runs):
  """Times the programs in turn; returns {program: [(wall, CPU)]}, logits."""
  times = {name: [] for name in PROGRAMS}
  logits = {}
  for _ in range(num_runs):
    for name, multiple in PROGRAMS.items():
      seconds, logits[name] = bench.predict(squad_head.squad_head, multiple)
      times[name].append(seconds)
  return times, logits


def main():
  arguments = parse_arguments()
  tf.logging.set_verbosity(tf.logging.ERROR)
  with tempfile.TemporaryDirectory() as folder:
    bench = Bench(arguments, folder)
    times, logits = measure(bench, arguments.runs)
    results = {"rows": bench.num_rows, "questions": len(bench.examples),
               "tensorflow": tf.__version__}
    for name, figures in times.items():
      wall, cpu = (statistics.median(column) for column in zip(*figures))
      results[name] = {"wall_s": wall, "cpu_s": cpu,
                       "rows_per_s": bench.num_rows / wall}
      print("%-26s %7.2f s wall  %7.2f s CPU  %7.1f rows/s (median of %d)" % (
          name, wall, cpu, bench.num_rows / wall, len(figures)))
    full, cut = PROGRAMS
    for key in ("wall_s", "cpu_s"):
      results["ratio_" + key] = results[full][key] / results[cut][key]
    print("ratio: %.2f wall, %.2f CPU" % (
        results["ratio_wall_s"], results["ratio_cpu_s"]))
    answers = bench.answer(logits[full])
    results["same_answers"] = bench.answer(logits[cut]) == answers
    results["largest_logit_difference"] = largest_difference(
        logits[full], logits[cut])
    print("same answers: %s; logits differ by %.1e at most" % (
        results["same_answers"], results["largest_logit_difference"]))
    if arguments.with_padding_logits:
      _, batches = bench.predict(head_with_padding_logits, 0)
      others = bench.answer(batches)
      results["others_with_padding_logits"] = sum(
          others[qas_id] != text for qas_id, text in answers.items())
      print("other answers where the logits of padding compete: %d of %d" % (
          results["others_with_padding_logits"], len(answers)))
  if arguments.json:
    pathlib.Path(arguments.json).write_text(json.dumps(results, indent=2))
  if not results["same_answers"]:
    sys.exit("the answers are not the same")


if __name__ == "__main__":
  main()
