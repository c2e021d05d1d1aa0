"""Times a SQuAD training step, also against a checkout of Google's BERT.

    .venv/tf2/bin/python benchmarks/train_step.py \\
        --bert_config_file .cache/minilm/bert_config.json \\
        --batch 16 --seq_length 256 --num_replicas 2 \\
        --against PATH_TO_BERT --against_python .venv/tf1/bin/python

Each program runs in a process of its own, in turn, several times; both build
BertModel, a span head and create_optimizer through the API that they share, so
that only the two modules differ. The first step of a process is not counted.
PATH_TO_BERT holds modeling.py and optimization.py; its code needs TensorFlow 1.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parse_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bert_config_file", required=True)
  parser.add_argument("--batch", type=int, default=16, help="global batch")
  parser.add_argument("--seq_length", type=int, default=256)
  parser.add_argument("--num_replicas", type=int, default=1,
                      help="CPU replicas of this project")
  parser.add_argument("--steps", type=int, default=3, help="steps a process")
  parser.add_argument("--runs", type=int, default=3, help="processes each")
  parser.add_argument("--against", help="folder of Google's modules")
  parser.add_argument("--against_python", default=sys.executable)
  parser.add_argument("--json", help="write the figures to this file")
  parser.add_argument("--child", help=argparse.SUPPRESS)
  return parser.parse_args()


def batch_of(arguments, vocab_size):
  """Random rows, from half full to full."""
  import numpy as np
  random = np.random.RandomState(0)
  shape = (arguments.batch, arguments.seq_length)
  lengths = random.randint(shape[1] // 2, shape[1] + 1, [shape[0], 1])
  mask = (np.arange(shape[1]) < lengths).astype(np.int32)
  return {"input_ids": random.randint(0, vocab_size, shape).astype(np.int32),
          "input_mask": mask, "segment_ids": mask,
          "start": np.ones(shape[0], np.int32),
          "end": np.ones(shape[0], np.int32)}


def build_step(modeling, optimization, config, rows):
  """The training op of one replica on its rows."""
  import tensorflow.compat.v1 as tf
  model = modeling.BertModel(
      config=config, is_training=True, input_ids=tf.constant(rows["input_ids"]),
      input_mask=tf.constant(rows["input_mask"]),
      token_type_ids=tf.constant(rows["segment_ids"]),
      use_one_hot_embeddings=False)
  hidden = model.get_sequence_output()
  weights = tf.get_variable("cls/squad/output_weights",
                            [2, config.hidden_size])
  logits = tf.reshape(tf.matmul(tf.reshape(
      hidden, [-1, config.hidden_size]), weights, transpose_b=True),
                      [len(rows["start"]), -1, 2])
  loss = sum(
      tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
          logits=logits[:, :, i], labels=rows[name])) / 2
      for i, name in enumerate(("start", "end")))
  return optimization.create_optimizer(loss, 1e-4, 1000, 100, False)


def run_child(arguments):
  """Prints [[wall, CPU] of each step] of the program in a folder."""
  sys.path.insert(0, arguments.child)
  import modeling
  import optimization
  import tensorflow.compat.v1 as tf
  config = modeling.BertConfig.from_json_file(arguments.bert_config_file)
  rows = batch_of(arguments, config.vocab_size)
  count = arguments.num_replicas
  session_config = tf.ConfigProto(device_count={"CPU": count})
  with tf.Graph().as_default():
    if count == 1:
      train_op = build_step(modeling, optimization, config, rows)
    else:
      strategy = tf.distribute.MirroredStrategy(
          devices=["/cpu:%d" % i for i in range(count)])

      def replica():
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        if not isinstance(index, int):
          index = int(tf.get_static_value(index))
        size = arguments.batch // count
        part = slice(index * size, (index + 1) * size)
        return build_step(modeling, optimization, config,
                          {name: value[part] for name, value in rows.items()})

      with strategy.scope():
        train_op = strategy.group(
            strategy.extended.call_for_each_replica(replica))
    with tf.Session(config=session_config) as session:
      session.run(tf.global_variables_initializer())
      session.run(train_op)
      figures = []
      for _ in range(arguments.steps):
        wall, cpu = time.perf_counter(), time.process_time()
        session.run(train_op)
        figures.append([time.perf_counter() - wall, time.process_time() - cpu])
  print(json.dumps(figures))


def measure(python, folder, arguments, num_replicas):
  """Runs one process; returns its figures."""
  command = [python, str(pathlib.Path(__file__).resolve()),
             "--child", str(folder), "--num_replicas", str(num_replicas)]
  for name in ("bert_config_file", "batch", "seq_length", "steps"):
    command += ["--" + name, str(getattr(arguments, name))]
  output = subprocess.run(command, stdout=subprocess.PIPE, check=True,
                          stderr=subprocess.DEVNULL).stdout
  return json.loads(output.splitlines()[-1])


def main():
  arguments = parse_arguments()
  if arguments.child:
    run_child(arguments)
    return
  programs = {"this project, %d replica(s)" % arguments.num_replicas:
              (sys.executable, ROOT, arguments.num_replicas)}
  if arguments.against:
    programs["Google's modules, one device"] = (
        arguments.against_python, arguments.against, 1)
  figures = {name: [] for name in programs}
  for _ in range(arguments.runs):
    for name, (python, folder, count) in programs.items():
      figures[name] += measure(python, folder, arguments, count)
  results = {}
  for name, steps in figures.items():
    wall, cpu = (statistics.median(column) for column in zip(*steps))
    results[name] = {"wall_s": wall, "cpu_s": cpu, "steps": len(steps)}
    print("%-34s %6.2f s wall  %6.2f s CPU a step (median of %d)" % (
        name, wall, cpu, len(steps)))
  if len(results) == 2:
    ours, theirs = results.values()
    print("ratio: %.2f wall, %.2f CPU" % (
        ours["wall_s"] / theirs["wall_s"], ours["cpu_s"] / theirs["cpu_s"]))
  if arguments.json:
    pathlib.Path(arguments.json).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
  main()
