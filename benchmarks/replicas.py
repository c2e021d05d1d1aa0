"""Times a SQuAD training step on 1, 2 and 4 CPU replicas.

    .venv/tf2/bin/python benchmarks/replicas.py --batch 16 --seq_length 128 \\
        --bert_config_file .cache/minilm/bert_config.json

The global batch and the cores are the same for every number of replicas, so
that what more replicas take is their overhead: copies of the weights, the
reduction of the gradients, smaller matrix products. Each number runs in a
process of its own, in turn, through the project's own strategy, input and
model_fn. The first step of a process is not counted.

All replicas of a process share its threads. --threads 0 leaves their number to
TensorFlow; another number is that of the threads within operations and of those
between them.
"""
import argparse
import itertools
import json
import os
import pathlib
import sys

import processes
from step_rows import make_rows, peak_memory_mb, time_steps
from train_step import count_ops

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parse_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bert_config_file", required=True)
  parser.add_argument("--batch", type=int, default=16, help="global batch")
  parser.add_argument("--seq_length", type=int, default=128)
  parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4],
                      help="numbers of replicas; the first is the measure of "
                      "the others")
  parser.add_argument("--threads", type=int, nargs="+",
                      default=[0, os.cpu_count()],
                      help="numbers of threads of a process")
  parser.add_argument("--all_reduce_packs", type=int,
                      help="as the flag of the run scripts")
  parser.add_argument("--all_reduce", default="auto",
                      help="as the flag of the run scripts")
  parser.add_argument("--steps", type=int, default=3, help="steps a process")
  parser.add_argument("--runs", type=int, default=3, help="processes each")
  parser.add_argument("--json", help="write the figures to this file")
  parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
  arguments = parser.parse_args()
  for count in arguments.replicas:
    if arguments.batch % count:
      parser.error("--batch=%d cannot be divided among --replicas=%d"
                   % (arguments.batch, count))
  return arguments


def run_child(arguments):
  """Prints the figures of one number of replicas and of threads."""
  sys.path.insert(0, str(ROOT))
  # Before TensorFlow, as in the run scripts: it asks for oneDNN's kernels.
  from multigpu import devices
  import tensorflow.compat.v1 as tf
  num_threads, = arguments.threads
  # For the strategy, which may start TensorFlow's threads before the session.
  tf.config.threading.set_intra_op_parallelism_threads(num_threads)
  tf.config.threading.set_inter_op_parallelism_threads(num_threads)
  found = devices.set_up(devices.DeviceSettings(
      *arguments.replicas, "cpu", arguments.all_reduce))
  found.session_config.intra_op_parallelism_threads = num_threads
  found.session_config.inter_op_parallelism_threads = num_threads
  sizes = record_reductions(found.strategy)
  with tf.Graph().as_default(), found.strategy.scope():
    iterator, train_op = build_step(arguments, found.strategy)
    with tf.Session(config=found.session_config) as session:
      session.run([iterator.initialize(), tf.global_variables_initializer()])
      figures = time_steps(lambda: session.run(train_op), arguments.steps)
      memory = peak_memory_mb()
      num_ops = count_ops(session, train_op)
    num_tensors = sum(variable.name.endswith("/adam_m:0")
                      for variable in tf.global_variables())
  print(json.dumps({
      "version": tf.__version__, "figures": figures, "memory_mb": memory,
      "ops": num_ops, "gradients": num_tensors, "packs": len(sizes),
      "bytes_reduced": sum(sizes)}))


def build_step(arguments, strategy):
  """Returns the iterator over the rows and the training op of all replicas."""
  import tensorflow.compat.v1 as tf
  import modeling
  import optimization
  from multigpu import model_fn
  from tasks import squad_head
  config = modeling.BertConfig.from_json_file(arguments.bert_config_file)
  rows = make_rows(arguments.batch, arguments.seq_length, config.vocab_size)
  for name in ("start", "end"):
    rows[name + "_positions"] = rows.pop(name)
  rows["unique_ids"] = rows["start_positions"]
  build = model_fn.build_model_fn(squad_head.squad_head, model_fn.ModelSettings(
      config, learning_rate=1e-4, num_train_steps=1000, num_warmup_steps=100,
      num_packs=arguments.all_reduce_packs or optimization.DEFAULT_NUM_PACKS))
  iterator = strategy.make_input_fn_iterator(
      lambda _: tf.data.Dataset.from_tensor_slices(rows).repeat().batch(
          arguments.batch // strategy.num_replicas_in_sync,
          drop_remainder=True).prefetch(2))

  def replica(features):
    return build(features, None, tf.estimator.ModeKeys.TRAIN, None).train_op

  return iterator, strategy.group(strategy.extended.call_for_each_replica(
      replica, args=(iterator.get_next(),)))


def record_reductions(strategy):
  """Returns a list that gets the bytes of each tensor that is reduced."""
  sizes = []
  reduce_all = strategy.extended.batch_reduce_to

  def batch_reduce_to(reduce_op, pairs, *options):
    for value, _ in pairs:
      tensor = strategy.experimental_local_results(value)[0]
      sizes.append(tensor.shape.num_elements() * tensor.dtype.size)
    return reduce_all(reduce_op, pairs, *options)

  strategy.extended.batch_reduce_to = batch_reduce_to
  return sizes


def make_command(arguments, num_threads, num_replicas):
  """The command of one process."""
  command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--child",
             "--threads", str(num_threads), "--replicas", str(num_replicas)]
  for name in ("bert_config_file", "batch", "seq_length", "steps",
               "all_reduce_packs", "all_reduce"):
    value = getattr(arguments, name)
    if value is not None:
      command += ["--" + name, str(value)]
  return command


def compare(arguments, outcomes):
  """Returns the figures of each pair (threads, replicas), a dict each."""
  results = []
  for (num_threads, num_replicas), some in outcomes.items():
    result = {"threads": num_threads, "replicas": num_replicas}
    result.update(processes.summarise(
        some, "memory_mb", "ops", "gradients", "packs", "bytes_reduced"))
    if num_replicas == arguments.replicas[0]:
      first = result
    for key in ("wall_s", "cpu_s"):
      result["ratio_" + key] = result[key] / first[key]
    results.append(result)
  return results


def main():
  arguments = parse_arguments()
  if arguments.child:
    run_child(arguments)
    return
  outcomes = processes.run_in_turn(
      {pair: make_command(arguments, *pair)
       for pair in itertools.product(arguments.threads, arguments.replicas)},
      arguments.runs)
  version = next(iter(outcomes.values()))[0]["version"]
  results = compare(arguments, outcomes)
  print("TensorFlow %s, %d gradients, medians of %d steps" % (
      version, results[0]["gradients"], arguments.steps * arguments.runs))
  print("%8s %8s %8s %8s %11s %10s %6s %6s %6s %11s" % (
      "threads", "replicas", "wall s", "CPU s", "ratio wall", "ratio CPU",
      "ops", "MB", "packs", "MB reduced"))
  for result in results:
    print("%8s %8d %8.3f %8.3f %11.2f %10.2f %6d %6.0f %6d %11.1f" % (
        result["threads"] or "default", result["replicas"], result["wall_s"],
        result["cpu_s"], result["ratio_wall_s"], result["ratio_cpu_s"],
        result["ops"], result["memory_mb"], result["packs"],
        result["bytes_reduced"] / 1e6))
  processes.write_json(arguments.json, {
      "tensorflow": version, "batch": arguments.batch,
      "seq_length": arguments.seq_length,
      "steps": arguments.steps * arguments.runs, "runs": results})


if __name__ == "__main__":
  main()
